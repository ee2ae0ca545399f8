"""Look inside a learner: which questions it asks, which bits it chose, whether it found the structure.

Works on the canonical state of any engine, at any chunk boundary, and maps features back through the
environment's permutation to components and bit names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nibbler.agents.config import NibblerConfig
from nibbler.engines.settle import caught_up

if TYPE_CHECKING:
    from nibbler.mdp.environment import Environment


@dataclass(frozen=True)
class Bit:
    """One observed feature and, where the environment is known, where it comes from."""

    feature: int
    component: int | None = None
    name: str | None = None

    def __str__(self) -> str:
        return str(self.feature) if self.component is None else f"{self.component}:{self.name}"


@dataclass(frozen=True)
class Question:
    """One GVF question: the bit it predicts, the bits its answer sees, and how that is going."""

    cumulant: Bit
    inputs: tuple[Bit, ...]
    input_swaps: int  # inputs exchanged so far
    mean_error: float  # mean |TD error| of the answer's state value over the stretch looked at

    @property
    def own_inputs(self) -> int:
        """How many of the inputs belong to the same component as the cumulant (0 if that is not known)."""
        if self.cumulant.component is None:
            return 0
        return sum(bit.component == self.cumulant.component for bit in self.inputs)


@dataclass(frozen=True)
class Inspection:
    """A learner at one moment. `print` it for a table."""

    step: int
    questions: tuple[Question, ...]  # empty for an agent that asks none
    cumulant_swaps: int
    mean_error: float  # mean |TD error| of the main value estimate over the stretch looked at
    found_share: np.ndarray | None  # float64[components], see `found_shares`; None if these are unknown

    @property
    def input_swaps(self) -> int:
        """Inputs exchanged so far, over all questions."""
        return sum(question.input_swaps for question in self.questions)

    @property
    def components_asked(self) -> int:
        """How many components have at least one of their bits as a cumulant."""
        components = {question.cumulant.component for question in self.questions}
        return len(components - {None})

    def __str__(self) -> str:
        return self.table()

    def table(self, max_rows: int = 32) -> str:
        """A summary line and one row per question, cut after `max_rows` questions."""
        lines = [f"step {self.step:,}: mean |TD error| {self.mean_error:.4g}"]
        if not self.questions:
            return lines[0]
        lines[0] += f", {self.input_swaps:,} input swaps, {self.cumulant_swaps:,} cumulant swaps"
        if self.found_share is not None:
            lines.append(
                f"{self.components_asked} of {len(self.found_share)} components asked about; "
                f"{self.found_share.mean():.0%} of a component's bits found on average"
            )
        lines.append(f"{'question':>8}  {'cumulant':<20} {'own inputs':>10} {'swaps':>9} {'|error|':>9}")
        for number, question in enumerate(self.questions[:max_rows]):
            known = self.found_share is not None
            own = f"{question.own_inputs}/{len(question.inputs)}" if known else f"?/{len(question.inputs)}"
            lines.append(
                f"{number:>8}  {question.cumulant!s:<20} {own:>10} "
                f"{question.input_swaps:>9,} {question.mean_error:>9.4g}"
            )
        if len(self.questions) > max_rows:
            lines.append(f"... and {len(self.questions) - max_rows} more questions")
        return "\n".join(lines)


def inspect_state(
    state: Mapping[str, np.ndarray],
    env: "Environment | None" = None,
    before: Mapping[str, np.ndarray] | None = None,
) -> Inspection:
    """What a canonical state says about its learner.

    Errors are averaged over the steps since the snapshot `before`, or since step 0.
    """
    step = int(state["step"])
    since = 0 if before is None else int(before["step"])
    steps = step - since
    if steps < 0:
        raise ValueError(f"before is at step {since}, after the state's step {step}; swap them")
    main = "main_error" if "main_error" in state else "value_error"
    if "cumulants" not in state:
        return Inspection(step, (), 0, float(_mean_since(main, state, before, steps)), None)
    errors = _mean_since("answer_error", state, before, steps)
    questions = tuple(
        Question(
            cumulant=_bit(int(cumulant), env),
            inputs=tuple(_bit(int(feature), env) for feature in state["inputs"][i]),
            input_swaps=int(state["input_swaps"][i]),
            mean_error=float(errors[i]),
        )
        for i, cumulant in enumerate(state["cumulants"])
    )
    return Inspection(
        step=step,
        questions=questions,
        cumulant_swaps=int(state["cumulant_swaps"]),
        mean_error=float(_mean_since(main, state, before, steps)),
        found_share=None if env is None else found_shares(state, env),
    )


def found_shares(state: Mapping[str, np.ndarray], env: "Environment") -> np.ndarray:
    """For every component, the share of its bits that some question about it sees.

    A question is about the component that its cumulant belongs to. The share is the number of the
    component's bits that are inputs of at least one question about it, over the number of its bits; 0 where
    no question is about it.
    """
    component_of = np.asarray(env.component_of_feature)
    seen = np.zeros(env.num_features, dtype=bool)
    for cumulant, inputs in zip(state["cumulants"], state["inputs"], strict=True):
        seen[inputs[component_of[inputs] == component_of[cumulant]]] = True
    bits = np.bincount(component_of, minlength=env.num_components)
    return np.bincount(component_of[seen], minlength=env.num_components) / bits


def main_action_values(
    state: Mapping[str, np.ndarray], config: NibblerConfig, active: np.ndarray
) -> np.ndarray:
    """What Nibbler's main learner thinks of every action where these features are on, float64[A].

    Reads only what the active features need, so views of an engine's memory will do for `state`.
    """
    on = np.zeros(len(state["discovery"]), dtype=bool)
    on[active] = True
    rows_on = on[state["inputs"]]
    if config.hidden_bias:
        rows_on = np.pad(rows_on, ((0, 0), (0, 1)), constant_values=True)
    at = np.nonzero(rows_on)  # question and row of every input that is on
    drift, _ = caught_up(int(state["step"]) - state["hidden_touched"][at], config.momentum)
    rows = state["hidden_weights"][at] - config.answer_alpha * drift[:, None] * state["hidden_momentum"][at]
    units = np.zeros(state["main_v_hidden"].shape)
    asked, first = np.unique(at[0], return_index=True)  # rows of a question lie together
    if asked.size:
        units[asked] = np.add.reduceat(rows, first)
    waited = state["action_counts"][:, None] - state["main_q_base_touched"][:, active]
    drift, _ = caught_up(waited, config.momentum)
    base = (
        state["main_q_base"][:, active] - config.main_alpha * drift * state["main_q_base_momentum"][:, active]
    )
    values: np.ndarray = base.sum(axis=1) + np.tensordot(
        state["main_q_hidden"], np.maximum(units, 0.0), axes=2
    )
    return values


def _bit(feature: int, env: "Environment | None") -> Bit:
    return Bit(feature) if env is None else Bit(feature, *env.locate(feature))


def _mean_since(
    name: str, state: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray] | None, steps: int
) -> np.ndarray:
    """The mean of a counter that only grows, over the steps since the earlier snapshot."""
    total = np.asarray(state.get(name, 0.0), dtype=np.float64)
    if before is not None:
        total = total - before.get(name, 0.0)
    return total / max(steps, 1)
