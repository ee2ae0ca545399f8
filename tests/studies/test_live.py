import io

import pytest
from rich.console import Console

from nibbler.studies.events import RunEvent
from nibbler.studies.live import LiveTable, duration, short_count
from nibbler.studies.spec import Study

STUDY = Study.grid(
    "curves", environments=["multi_catch"], agents=["nibbler", "random"], seeds=20, steps=10**6
)


def show(terminal, events):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=110, height=20, color_system=None)
    with LiveTable(STUDY, console) as live:
        for event in events:
            live(event)
    return screen.getvalue()


def events():
    done, working, broken = STUDY.runs[:3]
    return [
        RunEvent.about("started", done),
        RunEvent.about("finished", done, 10**6, reward=0.04, steps_per_second=2e5),
        RunEvent.about("started", working, 250_000),
        RunEvent.about("progress", working, 500_000, reward=-0.01, steps_per_second=1e5),
        RunEvent.about("failed", broken, 7, message="[bold]it broke"),
        *(RunEvent.about("skipped", spec, 10**6) for spec in STUDY.runs[30:]),
    ]


def test_the_table_shows_each_run_and_the_whole():
    text = show(True, events()).rpartition("curves (custom)")[2]
    lines = text.splitlines()
    finished = next(line for line in lines if "nibbler multi_catch seed 0" in line)
    assert "1M" in finished
    assert "+0.0400" in finished
    assert "done" in finished
    working = next(line for line in lines if "nibbler multi_catch seed 1" in line)
    assert "500k" in working
    assert "100,000" in working
    assert "5s" in working
    assert any("[bold]it broke" in line for line in lines)
    assert any("11 of 40 runs" in line for line in lines)
    assert any("27 waiting, 10 finished before" in line for line in lines)


def test_a_table_of_many_runs_fits_the_screen():
    many = [RunEvent.about("finished", spec, 10**6, reward=0.0) for spec in STUDY.runs]
    assert len(show(True, many).rpartition("curves (custom)")[2].splitlines()) < 20


def test_without_a_terminal_there_is_one_line_for_each_start_and_end():
    lines = show(False, events()).splitlines()
    assert lines == [
        "nibbler multi_catch seed 0: started",
        "nibbler multi_catch seed 0: finished, reward +0.0400, 200,000 steps/s",
        "nibbler multi_catch seed 1: resumed at step 250,000",
        "nibbler multi_catch seed 2: failed ([bold]it broke)",
    ]


@pytest.mark.parametrize(
    "steps, text", [(999, "999"), (12_300, "12.3k"), (40_000_000, "40M"), (2 * 10**9, "2G")]
)
def test_counts_are_short(steps, text):
    assert short_count(steps) == text


@pytest.mark.parametrize("seconds, text", [(41.6, "42s"), (185, "3m05s"), (7_650, "2h07m")])
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text
