"""Configs hold Table 1, refuse what cannot be run, and survive a trip through plain data."""

import json
import math

import numpy as np
import pytest

from nibbler.agents.config import (
    KnownStructureConfig,
    LinearConfig,
    NibblerConfig,
    QLearningConfig,
    QVLearningConfig,
    RandomConfig,
)
from nibbler.agents.registry import AGENT_NAMES, config_from_dict, default_config


def test_for_boards_is_table_1():
    config = NibblerConfig.for_boards(8)
    assert (config.num_questions, config.inputs_per_question, config.hidden_units) == (16, 82, 256)
    assert config.main_alpha == pytest.approx(0.001 * math.sqrt(2) / 4)
    assert config.linear_alpha == config.main_alpha
    assert (config.momentum, config.discount, config.epsilon) == (0.99, 0.99, 0.1)
    assert (config.input_threshold, config.cumulant_threshold) == (0.0, 0.0)


def test_answers_step_size_is_not_scaled_unless_asked():
    assert NibblerConfig(num_questions=16).answer_alpha == 0.001
    assert NibblerConfig(num_questions=16, scale_answer_step_size=True).answer_alpha == 0.00025


def test_literal_reading_uses_one_step_size_and_momentum_everywhere():
    config = NibblerConfig.literal(8, kappa=0.004)
    assert config.answer_alpha == config.main_alpha == config.linear_alpha == 0.001
    assert config.linear_momentum == 0.99
    assert config.swapped_input == "random"


def test_given_step_sizes_replace_kappa():
    config = NibblerConfig(num_questions=4, step_size=0.5, linear_step_size=0.25)
    assert (config.main_alpha, config.linear_alpha) == (0.5, 0.25)


def test_inputs_are_clipped_to_small_problems_but_not_when_asked_for():
    assert NibblerConfig.for_boards(1, num_features=56).inputs_per_question == 56
    asked = NibblerConfig.for_boards(1, num_features=56, inputs_per_question=60)
    with pytest.raises(ValueError, match="inputs_per_question=60 exceeds the 56 features; lower it"):
        asked.validate_for(56, 3)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"num_questions": 0}, "num_questions=0 must be a whole number of at least 1"),
        ({"num_questions": 2.5}, "num_questions=2.5 must be a whole number"),
        ({"hidden_units": True}, "hidden_units=True must be a whole number"),
        ({"epsilon": 1.5}, "epsilon=1.5 must be between 0 and 1"),
        ({"epsilon": math.nan}, "epsilon=nan must be between 0 and 1"),
        ({"discount": -0.1}, "discount=-0.1 must be between 0 and 1"),
        ({"momentum": 1.0}, "momentum=1.0 must be at least 0 and below 1"),
        ({"kappa": 0.0}, "kappa=0.0 must be a finite number above 0"),
        ({"step_size": math.inf}, "step_size=inf must be a finite number above 0"),
        ({"input_threshold": -1.0}, "input_threshold=-1.0 must be a finite number of at least 0"),
        ({"swapped_input": "zeros"}, "swapped_input='zeros' must be 'zero' or 'random'"),
        ({"changed_question": None}, "changed_question=None must be 'random' or 'keep'"),
        ({"hidden_bias": 1}, "hidden_bias=1 must be True or False"),
    ],
)
def test_a_wrong_field_is_refused_with_what_would_be_right(fields, message):
    with pytest.raises(ValueError, match=message):
        NibblerConfig(**{"num_questions": 4, **fields})


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: QLearningConfig(step_size=-1), "step_size=-1 must be a finite number above 0"),
        (lambda: QVLearningConfig(hidden_units=0), "hidden_units=0 must be a whole number"),
        (lambda: KnownStructureConfig(form="sarsa"), "form='sarsa' must be 'qv' or 'q'"),
        (lambda: LinearConfig(momentum=1.5), "momentum=1.5 must be at least 0 and below 1"),
        (lambda: RandomConfig(epsilon=0.5), "epsilon=0.5 must be 1.0"),
        (lambda: NibblerConfig(num_questions=57).validate_for(56, 3), "exceeds the 56 features"),
        (lambda: QLearningConfig().validate_for(0, 3), "num_features=0 must be"),
        (lambda: default_config("sarsa", 1, 56), "agent='sarsa' is not known; choose one of nibbler"),
        (lambda: config_from_dict({"epsilon": 0.1}), 'no "agent" in the config'),
        (lambda: config_from_dict({"agent": "linear", "nu": 1}), "nu: no such field in LinearConfig"),
    ],
)
def test_other_mistakes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_every_agent_survives_json(name):
    config = default_config(name, num_components=2, num_features=112)
    assert config.name == name
    assert config_from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_numbers_of_numpy_become_plain_ones():
    config = NibblerConfig(num_questions=np.int64(4), kappa=np.float32(0.5), hidden_bias=np.bool_(True))
    assert config == NibblerConfig(num_questions=4, kappa=0.5, hidden_bias=True)
    assert json.dumps(config.to_dict())


def test_default_config_takes_overrides():
    config = default_config("nibbler", 4, 224, hidden_units=8, kappa=0.01)
    assert isinstance(config, NibblerConfig)
    assert (config.num_questions, config.hidden_units, config.kappa) == (8, 8, 0.01)
