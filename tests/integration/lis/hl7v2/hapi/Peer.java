import ca.uhn.hl7v2.AcknowledgmentCode;
import ca.uhn.hl7v2.DefaultHapiContext;
import ca.uhn.hl7v2.ErrorCode;
import ca.uhn.hl7v2.HL7Exception;
import ca.uhn.hl7v2.app.Connection;
import ca.uhn.hl7v2.app.HL7Service;
import ca.uhn.hl7v2.llp.MinLowerLayerProtocol;
import ca.uhn.hl7v2.model.Message;
import ca.uhn.hl7v2.model.v25.datatype.CWE;
import ca.uhn.hl7v2.model.v25.datatype.ED;
import ca.uhn.hl7v2.model.v25.datatype.NM;
import ca.uhn.hl7v2.model.v25.datatype.ST;
import ca.uhn.hl7v2.model.v25.datatype.XPN;
import ca.uhn.hl7v2.model.v25.group.OML_O21_OBSERVATION_REQUEST;
import ca.uhn.hl7v2.model.v25.group.OML_O21_ORDER;
import ca.uhn.hl7v2.model.v25.group.OML_O21_SPECIMEN;
import ca.uhn.hl7v2.model.v25.message.OML_O21;
import ca.uhn.hl7v2.model.v25.message.ORL_O22;
import ca.uhn.hl7v2.model.v25.message.ORU_R01;
import ca.uhn.hl7v2.model.v25.segment.MSH;
import ca.uhn.hl7v2.model.v25.segment.OBR;
import ca.uhn.hl7v2.model.v25.segment.OBX;
import ca.uhn.hl7v2.model.v25.segment.ORC;
import ca.uhn.hl7v2.parser.CanonicalModelClassFactory;
import ca.uhn.hl7v2.parser.UnexpectedSegmentBehaviourEnum;
import ca.uhn.hl7v2.protocol.ReceivingApplication;
import ca.uhn.hl7v2.util.Terser;
import ca.uhn.hl7v2.util.idgenerator.InMemoryIDGenerator;
import ca.uhn.hl7v2.validation.impl.ValidationContextFactory;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** HAPI as a laboratory system: "serve PORT" takes orders, "serve-plain PORT" does so with HAPI's own settings, "send PORT MSH-10 LINE STATUS TEXT PDF SECONDS" gives one result. */
public final class Peer {
    private static final DefaultHapiContext CONTEXT = new DefaultHapiContext(new CanonicalModelClassFactory("2.5"));

    public static void main(String[] words) throws Exception {
        CONTEXT.setValidationContext(ValidationContextFactory.defaultValidation());
        CONTEXT.setLowerLayerProtocol(new MinLowerLayerProtocol(true)); // by MSH-18
        boolean plain = words[0].equals("serve-plain");
        if (!plain) {
            CONTEXT.getParserConfiguration().setUnexpectedSegmentBehaviour(UnexpectedSegmentBehaviourEnum.THROW_HL7_EXCEPTION);
            CONTEXT.getParserConfiguration().setNonGreedyMode(true); // the next ORC is the next order, and no prior result
        }
        CONTEXT.getParserConfiguration().setIdGenerator(new InMemoryIDGenerator()); // the other one writes a file where it stands
        int port = Integer.parseInt(words[1]);
        if (words[0].startsWith("serve")) {
            serve(port);
        } else {
            send(port, words);
            System.exit(0);
        }
    }

    private static void serve(int port) throws Exception {
        HL7Service server = CONTEXT.newServer(port, false);
        server.registerApplication("OML", "O21", new Orders());
        server.startAndWait();
        say("up", "yes");
        while (System.in.read() >= 0) { // until the test is over, or gone
        }
        System.exit(0);
    }

    private static final class Orders implements ReceivingApplication<Message> {
        @Override
        public boolean canProcess(Message message) {
            return true;
        }

        @Override
        public Message processMessage(Message message, Map<String, Object> about) throws HL7Exception {
            OML_O21 oml = (OML_O21) message;
            ORL_O22 answer = CONTEXT.newMessage(ORL_O22.class);
            XPN name = oml.getPATIENT().getPID().getPatientName(0);
            StringBuilder lines = new StringBuilder();
            String control = oml.getMSH().getMessageControlID().getValue();
            try {
                answer.initQuickstart("ORL", "O22", "P");
            } catch (java.io.IOException failure) {
                throw new HL7Exception(failure);
            }
            answer.getMSA().getAcknowledgmentCode().setValue(AcknowledgmentCode.AA.name());
            answer.getMSA().getMessageControlID().setValue(control);
            for (int n = 0; n < oml.getORDERReps(); n++) {
                OML_O21_ORDER order = oml.getORDER(n);
                OML_O21_OBSERVATION_REQUEST wanted = order.getOBSERVATION_REQUEST();
                String key = order.getORC().getPlacerOrderNumber().getEntityIdentifier().getValue();
                String code = wanted.getOBR().getUniversalServiceIdentifier().getIdentifier().getValue();
                if (code.equals("UNKNOWN")) {
                    throw new HL7Exception("no such test", ErrorCode.UNKNOWN_KEY_IDENTIFIER);
                }
                if (code.equals("BUSY")) {
                    throw new HL7Exception("come again", ErrorCode.APPLICATION_RECORD_LOCKED);
                }
                if (wanted.getSPECIMENReps() != 1 || wanted.getSPECIMEN().getCONTAINERReps() != 1) {
                    throw new HL7Exception("one specimen in one tube was meant", ErrorCode.REQUIRED_FIELD_MISSING);
                }
                OML_O21_SPECIMEN specimen = wanted.getSPECIMEN();
                String barcode = specimen.getSPM().getSpecimenID().getPlacerAssignedIdentifier().getEntityIdentifier().getValue();
                String tube = specimen.getCONTAINER().getSAC().getContainerIdentifier().getEntityIdentifier().getValue();
                lines.append(String.join(" ", key, code, barcode, tube)).append('\n');
                ORC orc = answer.getRESPONSE().getPATIENT().getORDER(n).getORC();
                orc.getOrderControl().setValue("OK");
                orc.getPlacerOrderNumber().getEntityIdentifier().setValue(key);
                orc.getFillerOrderNumber().getEntityIdentifier().setValue("F" + n);
            }
            say("id", control, "family", name.getFamilyName().getSurname().getValue(), "given", name.getGivenName().getValue(),
                "middle", name.getSecondAndFurtherGivenNamesOrInitialsThereof().getValue(),
                "sex", oml.getPATIENT().getPID().getAdministrativeSex().getValue(), "lines", lines.toString());
            return answer;
        }
    }

    private static void send(int port, String[] words) throws Exception {
        ORU_R01 oru = CONTEXT.newMessage(ORU_R01.class);
        oru.initQuickstart("ORU", "R01", "P");
        MSH msh = oru.getMSH();
        msh.getSendingApplication().getNamespaceID().setValue("HAPI");
        msh.getReceivingApplication().getNamespaceID().setValue("LAB-AGENT");
        msh.getMessageControlID().setValue(words[2]);
        msh.getCharacterSet(0).setValue("UNICODE UTF-8");
        oru.getPATIENT_RESULT().getPATIENT().getPID().getPatientIdentifierList(0).getIDNumber().setValue("X");
        OBR obr = oru.getPATIENT_RESULT().getORDER_OBSERVATION().getOBR();
        obr.getSetIDOBR().setValue("1");
        obr.getPlacerOrderNumber().getEntityIdentifier().setValue(words[3]);
        obr.getFillerOrderNumber().getEntityIdentifier().setValue("B1");
        obr.getUniversalServiceIdentifier().getIdentifier().setValue("T");
        obr.getObservationDateTime().getTime().setValue("20240517083000+0300");
        obr.getResultsRptStatusChngDateTime().getTime().setValue("20240518090000+0300");
        obr.getResultStatus().setValue("F");

        NM number = new NM(oru);
        number.setValue("1.20");
        OBX first = observation(oru, 0, "NM", "718-7", "LN", words[4]);
        first.getUnits().getIdentifier().setValue("g/L");
        first.getReferencesRange().setValue("1.0-2.0");
        first.getObservationValue(0).setData(number);

        CWE coded = new CWE(oru);
        coded.getIdentifier().setValue("260385009");
        coded.getText().setValue("Negative");
        coded.getNameOfCodingSystem().setValue("SCT");
        observation(oru, 1, "CWE", "5778-6", "LN", words[4]).getObservationValue(0).setData(coded);

        ST text = new ST(oru);
        text.setValue(URLDecoder.decode(words[5], StandardCharsets.UTF_8));
        observation(oru, 2, "ST", "8251-1", "LN", words[4]).getObservationValue(0).setData(text);

        ED document = new ED(oru);
        document.getTypeOfData().setValue("application");
        document.getDataSubtype().setValue("PDF");
        document.getEncoding().setValue("Base64");
        document.getData().setValue(words[6]);
        observation(oru, 3, "ED", "PDF", "L", words[4]).getObservationValue(0).setData(document);

        try (Connection connection = CONTEXT.newClient("127.0.0.1", port, false)) {
            connection.getInitiator().setTimeout(Long.parseLong(words[7]), TimeUnit.SECONDS);
            Terser answer = new Terser(connection.getInitiator().sendAndReceive(oru)); // HAPI finds the answer by MSA-2
            say("code", answer.get("/MSA-1"), "about", answer.get("/MSA-2"),
                "error", answer.get("/ERR-3-1"), "why", answer.get("/ERR-8"));
        } catch (Exception failure) {
            say("failure", failure.getClass().getSimpleName());
        }
    }

    private static OBX observation(ORU_R01 oru, int place, String type, String code, String system, String status)
            throws HL7Exception {
        OBX obx = oru.getPATIENT_RESULT().getORDER_OBSERVATION().getOBSERVATION(place).getOBX();
        obx.getSetIDOBX().setValue(String.valueOf(place + 1));
        obx.getValueType().setValue(type);
        obx.getObservationIdentifier().getIdentifier().setValue(code);
        obx.getObservationIdentifier().getNameOfCodingSystem().setValue(system);
        obx.getObservationResultStatus().setValue(status);
        return obx;
    }

    /** Write names and what they stand for, as in the query of a web address. */
    private static void say(String... words) {
        StringBuilder line = new StringBuilder();
        for (int n = 0; n < words.length; n += 2) {
            String value = words[n + 1] == null ? "" : words[n + 1];
            line.append(n == 0 ? "" : "&").append(words[n]).append('=').append(URLEncoder.encode(value, StandardCharsets.UTF_8));
        }
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }
}
