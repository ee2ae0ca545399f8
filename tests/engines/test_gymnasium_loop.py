"""Nibbler on Gymnasium environments: a tiny one whose answers are known, and MinAtar."""

import gymnasium
import numpy as np
import pytest

from nibbler.agents.config import NibblerConfig
from nibbler.engines.gymnasium_loop import binary_spaces, train_gymnasium
from nibbler.engines.stream import Nibbler

SMALL = NibblerConfig(
    num_questions=2, inputs_per_question=4, hidden_units=16, kappa=0.05, answer_step_size=0.01, discount=0.5
)


class Signal(gymnasium.Env):
    """Shows which of two actions is rewarded; an episode ends or is cut off after three steps."""

    def __init__(self, truncates=False, first_action=0):
        self.observation_space = gymnasium.spaces.MultiBinary((2, 2))
        self.action_space = gymnasium.spaces.Discrete(2, start=first_action)
        self.truncates = truncates
        self.resets = 0

    def _observe(self):
        self.right = int(self.np_random.integers(2))
        shown = np.zeros((2, 2), dtype=np.int8)
        shown[self.right, int(self.np_random.integers(2))] = 1
        return shown

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        reward = float(action - self.action_space.start == self.right)
        self.time += 1
        over = self.time == 3
        return self._observe(), reward, over and not self.truncates, over and self.truncates, {}


@pytest.mark.parametrize("truncates", [False, True])
def test_it_learns_and_counts_episodes(truncates):
    env = Signal(truncates, first_action=5)
    result = train_gymnasium(env, SMALL, steps=4000, seed=1, bin_size=1000)
    assert result.rewards[-1] > 0.85  # 0.95 is the most that epsilon 0.1 allows; chance is 0.5
    assert result.rewards.shape == (4,)
    assert len(result.episode_returns) == 4000 // 3
    assert (result.episode_lengths == 3).all()
    assert result.episode_returns.sum() == pytest.approx(result.rewards.sum() * 1000, abs=1.0)
    assert env.resets == 4000 // 3 + 1
    assert result.agent.steps == 4000


class Recorder(Nibbler):
    """Notes what the loop hands to an agent."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = []

    def start(self, observation):
        self.calls.append("start")
        return super().start(observation)

    def step(self, reward, observation, discount=None):
        self.calls.append(discount)
        return super().step(reward, observation, discount)


@pytest.mark.parametrize("truncates, last", [(False, 0.0), (True, None)])
def test_bootstrapping_is_cut_where_an_episode_terminates_and_not_where_it_is_truncated(truncates, last):
    agent = Recorder(4, 2, SMALL)
    train_gymnasium(Signal(truncates), agent, steps=6)
    assert agent.calls == ["start", None, None, last, "start", None, None, last, "start"]


def test_an_agent_can_be_trained_on():
    agent = Nibbler(4, 2, SMALL, seed=1)
    train_gymnasium(Signal(), agent, steps=50)
    result = train_gymnasium(Signal(), agent, steps=50)
    assert result.agent is agent
    assert agent.steps == 100


class Spaces(gymnasium.Env):
    def __init__(self, observations, actions):
        self.observation_space, self.action_space = observations, actions


BITS, TWO = gymnasium.spaces.MultiBinary(4), gymnasium.spaces.Discrete(2)


@pytest.mark.parametrize(
    "observations, actions, message",
    [
        (gymnasium.spaces.Box(0, 255, (4,), np.uint8), TWO, "Nibbler needs MultiBinary or a 0/1 Box"),
        (gymnasium.spaces.Box(-1.0, 1.0, (4,)), TWO, "Nibbler needs MultiBinary or a 0/1 Box"),
        (gymnasium.spaces.Discrete(4), TWO, "Nibbler needs MultiBinary or a 0/1 Box"),
        (BITS, gymnasium.spaces.Box(0, 1, (2,)), "Nibbler needs Discrete actions"),
    ],
)
def test_other_spaces_are_refused(observations, actions, message):
    with pytest.raises(ValueError, match=message):
        train_gymnasium(Spaces(observations, actions), SMALL, steps=10)


def test_sizes_are_those_of_the_spaces():
    env = Spaces(gymnasium.spaces.Box(0, 1, (3, 5), np.int8), gymnasium.spaces.Discrete(4, start=-1))
    assert binary_spaces(env) == (15, 4, -1)


def test_an_agent_of_another_size_is_refused():
    with pytest.raises(ValueError, match="is for 5 features and 2 actions, the environment has 4 and 2"):
        train_gymnasium(Signal(), Nibbler(5, 2, SMALL), steps=10)
    with pytest.raises(ValueError, match="steps=0 and bin_size=10000 must be at least 1"):
        train_gymnasium(Signal(), SMALL, steps=0)


@pytest.fixture
def minatar():
    pytest.importorskip("minatar", reason="MinAtar is not installed")
    from minatar.gym import register_envs

    if "MinAtar/Breakout-v1" not in gymnasium.registry:
        register_envs()


@pytest.mark.usefixtures("minatar")
def test_nibbler_runs_on_minatar():
    result = train_gymnasium("MinAtar/Breakout-v1", steps=2000, bin_size=500)
    assert result.agent.num_features == 400
    assert result.rewards.shape == (4,)
    assert len(result.episode_returns) > 50
    assert result.agent.inspect().input_swaps > 0


@pytest.mark.slow
@pytest.mark.usefixtures("minatar")
def test_nibbler_improves_on_minatar_breakout_in_100k_steps():
    result = train_gymnasium("MinAtar/Breakout-v1", steps=100_000, seed=0)
    state = result.agent.state()
    assert result.agent.steps == 100_000
    assert all(np.isfinite(value).all() for value in state.values() if value.dtype.kind == "f")
    assert result.rewards[5:].mean() > result.rewards[0]
