from itertools import islice

from lab_sandbox.partner.basket import orderable
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.generator import plans
from lab_sandbox.partner.reading import order_status


async def test_generated_orders_are_accepted(client: PartnerClient, clinic: Clinic):
    items = orderable(await client.nomenclature(), await client.eta())
    for plan in islice(plans("C-100", items, seed=1), 120):
        order = await clinic.place(plan)
        status = await order_status(client, order)
        assert status.order == "requested", plan
        assert set(status.lines.values()) == {"requested"}
