"""The names of all conditions. They are stored, and are labels of metrics: a name that was given stays."""

from __future__ import annotations

from enum import StrEnum


class ConditionId(StrEnum):
    """What can be wrong: subject of the matter, then what is wrong with it."""

    # the exchange service
    EXCHANGE_UNAVAILABLE = "exchange.unavailable"
    EXCHANGE_SLOW = "exchange.slow"
    EXCHANGE_ASKS_TO_WAIT = "exchange.asks_to_wait"
    EXCHANGE_SIGN_IN = "exchange.sign_in"
    EXCHANGE_POLL = "exchange.poll"
    EXCHANGE_POLL_CUT_OFF = "exchange.poll_cut_off"
    EXCHANGE_FOREIGN_LINKS = "exchange.foreign_links"
    EXCHANGE_PART_UNAVAILABLE = "exchange.part_unavailable"
    EXCHANGE_UNREADABLE_TASKS = "exchange.unreadable_tasks"
    EXCHANGE_SEARCH_NOT_FILTERED = "exchange.search_not_filtered"
    EXCHANGE_DOCUMENT_CHANGED = "exchange.document_changed"
    EXCHANGE_RESTORED = "exchange.restored"
    EXCHANGE_NO_CONTRACT = "exchange.no_contract"
    CLOCK_DIFFERS = "clock.differs"

    # laboratory systems
    LIS_UNAVAILABLE = "lis.unavailable"
    LIS_NOT_LOADED = "lis.not_loaded"
    LIS_REMOVED = "lis.removed"
    LIS_PAUSED = "lis.paused"
    LIS_MAP_INVALID = "lis.map_invalid"
    LIS_NEEDS_RESTART = "lis.needs_restart"
    LIS_SILENT = "lis.silent"
    LIS_REFUSED_MESSAGES = "lis.refused_messages"
    LIS_CONNECTIONS = "lis.connections"
    LIS_UNFINISHED_INPUT = "lis.unfinished_input"
    LIS_TURNED_AWAY = "lis.turned_away"
    LIS_UNNAMED_LINES = "lis.unnamed_lines"
    LIS_ADAPTER_ALERT = "lis.adapter_alert"

    # orders and lines
    ORDERS_HELD = "orders.held"
    ORDERS_OVERDUE = "orders.overdue"
    ORDERS_PART_WAITS = "orders.part_waits"
    ORDERS_TASK_UNREADABLE = "orders.task_unreadable"
    LINES_HELD = "lines.held"
    LINES_TASK_UNREADABLE = "lines.task_unreadable"
    RULE_STOPPED = "rule.stopped"

    # results
    RESULTS_UNMATCHED = "results.unmatched"
    RESULTS_UNMAPPED = "results.unmapped"
    RESULTS_HELD = "results.held"

    # jobs, by why they fail
    JOBS_SIGN_IN = "jobs.sign_in"
    JOBS_SERVICE_UNAVAILABLE = "jobs.service_unavailable"
    JOBS_SERVICE_ASKS_TO_WAIT = "jobs.service_asks_to_wait"
    JOBS_OUTCOME_UNKNOWN = "jobs.outcome_unknown"
    JOBS_INVALID_RESPONSE = "jobs.invalid_response"
    JOBS_READ_REJECTED = "jobs.read_rejected"
    JOBS_TASK_UNREADABLE = "jobs.task_unreadable"
    JOBS_WRITE_REJECTED = "jobs.write_rejected"
    JOBS_NO_RIGHT = "jobs.no_right"
    JOBS_SEVERAL_MATCHES = "jobs.several_matches"
    JOBS_NEWER_ON_SERVICE = "jobs.newer_on_service"
    JOBS_FOREIGN_LINK = "jobs.foreign_link"
    JOBS_LIS_UNAVAILABLE = "jobs.lis_unavailable"
    JOBS_LIS_DISK_FULL = "jobs.lis_disk_full"
    JOBS_LIS_OUTCOME_UNKNOWN = "jobs.lis_outcome_unknown"
    JOBS_LIS_REJECTED = "jobs.lis_rejected"
    JOBS_LIS_NOT_LOADED = "jobs.lis_not_loaded"
    JOBS_INTERNAL_ERROR = "jobs.internal_error"
    JOBS_OTHER = "jobs.other"

    # the store
    STORE_UNREACHABLE = "store.unreachable"
    STORE_LOCKED = "store.locked"
    STORE_DISK_FULL = "store.disk_full"
    STORE_READ_ONLY = "store.read_only"
    STORE_DELETED = "store.deleted"
    STORE_LOG_DELETED = "store.log_deleted"
    STORE_DAMAGED = "store.damaged"
    STORE_OTHER_KEY = "store.other_key"
    STORE_OTHER_SCHEMA = "store.other_schema"
    STORE_NEWER_SCHEMA = "store.newer_schema"
    STORE_SECOND_AGENT = "store.second_agent"
    STORE_RESTORED = "store.restored"

    # the agent and its machine
    AGENT_NOT_RUNNING = "agent.not_running"
    AGENT_NOT_ANSWERING = "agent.not_answering"
    AGENT_FROZEN = "agent.frozen"
    AGENT_LOST_MACHINE = "agent.lost_machine"
    AGENT_STOOD_STILL = "agent.stood_still"
    AGENT_POLL_OVERDUE = "agent.poll_overdue"
    AGENT_TASK_ENDED = "agent.task_ended"
    AGENT_PROBE_HANGS = "agent.probe_hangs"
    AGENT_PORT_TAKEN = "agent.port_taken"
    DISK_LOW = "disk.low"
    SETTINGS_INVALID = "settings.invalid"
    SETTINGS_READABLE_BY_OTHERS = "settings.readable_by_others"
    SETTINGS_EQUAL_PORTS = "settings.equal_ports"
    BACKUP_OLD = "backup.old"
    NOTIFICATION_FAILED = "notification.failed"

    # the laboratory's API, its catalogue and labels
    API_NOT_ANSWERING = "api.not_answering"
    API_NOT_PUBLIC = "api.not_public"
    API_NOT_READY = "api.not_ready"
    API_CALLERS_REFUSED = "api.callers_refused"
    API_CALLERS_ANONYMOUS = "api.callers_anonymous"
    API_CATALOGUE_OUTDATED = "api.catalogue_outdated"
    CATALOGUE_UNREADABLE = "catalogue.unreadable"
    CATALOGUE_INVALID = "catalogue.invalid"
    LABELS_LOW = "labels.low"
    LABELS_EXHAUSTED = "labels.exhausted"
