"""Says at the end which blocks of the pages were only looked at, and why."""

from _pytest.terminal import TerminalReporter

from tests.acceptance.docs.test_installed_pages import DOCS, PAGES
from tests.integration.client.page import left_out


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    terminalreporter.section("Blocks of the documentation that are not run")
    for name in sorted(PAGES):
        for first_line, reason in left_out(DOCS / name).items():
            terminalreporter.write_line(f"{name}: {first_line.strip()[:60]}: {reason}")
