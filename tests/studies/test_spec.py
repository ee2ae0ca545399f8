import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nibbler.studies.spec import RunSpec, Study

CATCH = {"name": "multi_catch", "num_boards": 8, "seed": 0, "heterogeneous": False}


def spec(**changes):
    fields = {"environment": CATCH, "agent": {"name": "nibbler"}, "steps": 100_000, "seed": 3}
    return RunSpec(**{**fields, **changes})


def test_the_id_never_changes():
    # Results on disk are found by their id: a new value here would orphan everybody's runs.
    assert spec().id == "7e82157bdc63fcb0"


def test_the_id_does_not_depend_on_the_order_of_settings_or_on_how_a_number_is_written():
    reordered = dict(reversed(CATCH.items()))
    assert spec(environment=reordered).id == spec().id
    assert spec(agent={"name": "nibbler", "kappa": 1}) == spec(agent={"name": "nibbler", "kappa": 1.0})
    assert (
        spec(agent={"name": "nibbler", "kappa": np.float64(0.5)}).id
        == spec(agent={"name": "nibbler", "kappa": 0.5}).id
    )


@pytest.mark.parametrize(
    "change",
    [
        {"environment": {**CATCH, "num_boards": 4}},
        {"agent": {"name": "q-learning"}},
        {"steps": 200_000},
        {"seed": 4},
        {"engine": "cpu"},
        {"bin_size": 5_000},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_that_determines_the_result_changes_the_id(change):
    assert spec(**change).id != spec().id
    assert spec(**change) != spec()


def test_a_spec_is_not_changed_by_what_happens_to_the_dictionary_it_was_made_from():
    environment = dict(CATCH)
    made = spec(environment=environment)
    environment["num_boards"] = 2
    assert made == spec()


plain = st.recursive(
    st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    kwargs=st.dictionaries(st.text().filter(lambda k: k not in ("name", "import")), plain, max_size=4),
    steps=st.integers(10_000, 10**12),
    seed=st.integers(0, 2**64 - 1),
    description=st.text(),
)
def test_json_and_toml_give_back_the_same_study(kwargs, steps, seed, description):
    run = RunSpec({"name": "multi_catch", **kwargs}, {"import": "my.module:make", **kwargs}, steps, seed)
    study = Study("mine", "laptop", (run,), description, {"threshold": 0.5})
    assert RunSpec.from_json(run.to_json()) == run
    assert RunSpec.from_toml(run.to_toml()) == run
    assert Study.from_json(study.to_json()) == study
    assert Study.from_toml(study.to_toml()).runs[0].id == run.id


def test_a_study_written_by_hand_expands_seeds_and_fills_in_defaults(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("""
        name = "mine"
        description = "does kappa matter?"
        defaults = {steps = 50_000, environment = {name = "multi_catch", num_boards = 2}, seeds = 2}

        [[runs]]
        agent = {name = "nibbler"}

        [[runs]]
        agent = {import = "my_module:make_agent", depth = 3}
        seeds = [7, 9]
        steps = 20_000

        [[runs]]
        agent = "random"
        seed = 5
        """)
    study = Study.read(path)
    seeds = [(run.agent.get("name", "own"), run.seed, run.steps) for run in study.runs]
    assert seeds == [
        ("nibbler", 0, 50_000),
        ("nibbler", 1, 50_000),
        ("own", 7, 20_000),
        ("own", 9, 20_000),
        ("random", 5, 50_000),
    ]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"steps": 1.5}, "steps is 1.5; it must be a whole number"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "below 2\\*\\*64"),
        ({"engine": "gpu"}, "engine is 'gpu'; choose one of auto"),
        ({"bin_size": 100_001}, "bin_size=100001 exceeds the 100000 steps of the run; lower it"),
        ({"environment": {"num_boards": 3}}, 'environment needs either "name"'),
        ({"agent": {"name": "x", "import": "a:b"}}, 'agent needs either "name"'),
        ({"agent": {"import": "os.system('x')"}}, 'write it as "package.module:function"'),
        ({"agent": {"name": "nibbler", "kappa": float("nan")}}, "agent.kappa is nan"),
        ({"agent": {"name": "nibbler", "kappa": object()}}, "agent.kappa is a object"),
        ({"environment": 3}, "environment is 3"),
    ],
)
def test_a_bad_spec_is_refused_with_the_field_and_the_remedy(changes, message):
    with pytest.raises(ValueError, match=message):
        spec(**changes)


@pytest.mark.parametrize(
    "text, message",
    [
        ("[1, 2]", "a study is a table"),
        ('{"name": "x"}', "a study lacks 'runs'"),
        ('{"name": "x", "runs": []}', "has no runs"),
        ('{"name": "../x", "runs": [{}]}', "run 1 of the study: a run lacks 'agent'"),
        ('{"name": "x", "rnus": [], "runs": []}', "unknown field 'rnus'"),
        ("{", "Expecting property name"),
    ],
)
def test_a_bad_study_file_is_refused_in_one_line_that_names_the_file(tmp_path, text, message):
    path = tmp_path / "study.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        Study.read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_study_name_cannot_leave_the_results_folder():
    with pytest.raises(ValueError, match="use letters"):
        Study("../../etc/passwd", "laptop", (spec(),))


def test_a_run_listed_twice_is_one_run():
    assert len(Study("twice", "smoke", (spec(), spec(), spec(seed=4))).runs) == 2


def test_labels_tell_the_runs_of_a_sweep_apart_and_folder_names_are_plain():
    one = spec(agent={"name": "q-learning", "step_size": 0.001})
    two = spec(agent={"name": "q-learning", "step_size": 0.01})
    assert one.label == "q-learning step_size=0.001 multi_catch-8 seed 3"
    assert one.label != two.label
    odd = spec(agent={"name": "../a b/c", "x": "=" * 300})
    assert set(odd.folder_name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
    assert len(odd.folder_name) < 130
    assert not odd.folder_name.startswith(".")


def test_reading_a_spec_follows_no_import_path(tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    text = json.dumps({"name": "x", "runs": [{"environment": "trap:x", "agent": "trap:y", "steps": 10_000}]})
    (tmp_path / "study.json").write_text(text)
    code = (
        "from nibbler.studies.spec import Study; s = Study.read('study.json'); "
        "print(s.runs[0].id, s.runs[0].label); import sys; assert 'trap' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
