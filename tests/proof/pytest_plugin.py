"""A plug-in of pytest for `make proof`: what is told while hours pass, and what a shorter run is without."""

from __future__ import annotations

import signal
import threading

import pytest

from tests.harness.proof import FIGURES, SHARE


class ProofReporter:
    """Writes a failure beside the dots when it happens, and counts the tests that have ended."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None:
            return  # a worker of xdist: its reports come to the process that has the terminal
        if report.failed:
            terminal.write_line(f"\n{report.nodeid}\n{report.longreprtext}")
        if report.when == "teardown":
            FIGURES.test_ended()


def pytest_configure(config: pytest.Config) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell sets it to be ignored by what runs in its background
    config.pluginmanager.register(ProofReporter(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [each for each in items if SHARE < 1 and each.get_closest_marker("in_full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [each for each in items if each not in set(left_out)]
