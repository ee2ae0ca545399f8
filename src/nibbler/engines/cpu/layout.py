"""Where Nibbler's state lies in memory on this engine, and the way from and to the canonical arrays.

All float arrays are flat, float32, and begin at a cache line. d hidden units are padded to `units`, a
multiple of 32, and the h questions with one more column for discovery to `columns`, a multiple of 16;
padding is zero and stays zero.

| array | element | meaning |
| --- | --- | --- |
| hidden | (question, row, 0 or 1, unit) | w_u and, right behind each row, its momentum |
| heads | (question, line, unit) | all that is linear in a question's features, see below |
| base | (feature, 0 for v or 1 + a for q_a) | the main weights over the base features |
| support | (feature, column) | w_support, transposed; the last column is w_discovery |
| block_high | (block of 64 features, column) | no unselected utility in the block is larger |
| member_bits | (feature, column / 64) | a bit per column: the feature is selected there |
| position | (feature, column) | where it is in that selection, -1 if nowhere |

Lines of `heads`: 0 the features x^e_t; 1 answer_v and 3 main_v, each followed by its momentum; 5 + a main_q;
then for each action answer_q, its momentum, and the momentum of main_q. So what every step touches lies
together, in front, and what only one action touches is together too.

Discovery is one more column of `support`: its cumulant is the reward, its discount 0, its selection the
questions' cumulants. Everything about selection is thus done for 16 columns at once.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nibbler.agents.config import NibblerConfig
from nibbler.agents.policy import exploration_threshold
from nibbler.engines.initial import weight_spread

Array = np.ndarray

UNIT_BLOCK = 32  # hidden units that are worked on at once, at least
FEATURE_BLOCK = 64  # features that share an upper bound of their utility
POWERS = 2048  # steps of decay that are looked up; longer ones are computed

# Lines of `heads`.
FEATURES, ANSWER_V, MAIN_V, MAIN_Q = 0, 1, 3, 5
LINES_PER_ACTION = 3  # behind the main_q of all actions: answer_q, its momentum, the momentum of main_q

# Entries of `clock`.
STEP, ACTION_NOW, COUNT_NOW, PENDING, ACTION_BEFORE, COUNT_BEFORE, CHANGED_QUESTION = range(7)
CUMULANT_SWAPS, WEIGHTS_TOUCHED, LISTS_KNOWN, CHANGES, CLOCK_SIZE = range(7, 12)


class NibblerSettings(NamedTuple):
    """The numbers of a run that never change."""

    num_questions: int  # h
    inputs_per_question: int  # g
    num_rows: int  # g', one more than g where there is a bias
    hidden_units: int  # d
    units: int  # d padded
    num_lines: int  # lines of `heads` per question
    num_features: int  # m
    num_actions: int
    columns: int  # h + 1 padded
    words: int  # 64-bit words of member_bits per feature
    blocks: int  # blocks of features
    answer_alpha: Any
    main_alpha: Any
    linear_alpha: Any
    nu: Any
    gain: Any  # 1 - nu
    linear_nu: Any
    linear_gain: Any
    exact_nu: float
    spread: float  # half the width of fresh random weights
    random_swaps: bool
    random_questions: bool
    has_linear_momentum: bool
    explore_below: Any
    seed: Any


class NibblerArrays(NamedTuple):
    """The arrays of a run; the module's docstring says how each is laid out."""

    hidden: Array
    touched: Array  # int64 (question, row); -1 - s: the row is to be drawn afresh as of step s
    heads: Array
    base: Array
    base_momentum: Array
    base_touched: Array  # int64, in steps for v and in uses of the action for q_a
    base_clock: Array  # int64[1 + A]: the step, then the uses of each action
    support: Array
    support_momentum: Array  # empty without linear momentum
    inputs: Array  # int32 (question, position)
    cumulants: Array
    position: Array
    member_bits: Array
    low: Array  # (column): no selected utility is smaller
    high: Array  # (column): no unselected utility is larger
    block_high: Array
    threshold: Array  # (column): tau
    bootstraps: Array  # (column): 1 where the column's discount is gamma, 0 for discovery
    cumulant: Array  # (column): C_{t+1}, scratch as are the next two
    linear_now: Array  # (column): w_support^T x_t
    linear_next: Array
    active: Array  # x_t, as a list
    active_next: Array  # x_{t+1}, as a list
    active_before: Array  # x_{t-1}, as a list
    is_active: Array  # x_t, as a mask
    mark: Array  # scratch (feature)
    list_rows: Array  # int32 (question, entry), see `lists`
    list_count: Array
    enter_rows: Array
    enter_count: Array
    leave_rows: Array
    leave_count: Array
    left: Array  # int64 (question, row)
    swap: Array  # int32 (question): position that was swapped and waits for its new weights, or -1
    renewed: Array  # uint8 (question): the last step changed rows other than by its gradient
    error_v: Array  # (question), of the answers
    error_q: Array
    main_error: Array  # float32[2]: v, q
    row_offset: Array  # scratch, as are the next: where active rows begin
    row_sign: Array  # how often a row counts: 1, 0 or -1
    row_drift: Array  # -alpha times the drift of its momentum since it was touched
    row_decay: Array  # what is left of its momentum, times nu
    gradient: Array  # scratch (unit)
    next_features: Array  # scratch (unit)
    q_values: Array  # float64 scratch (action)
    decay: Array  # nu^k
    drift: Array  # nu (1 - nu^k) / (1 - nu)
    clock: Array  # int64, see above
    input_swaps: Array
    answer_error_sum: Array  # float64 (question)
    main_error_sum: Array  # float64[1]


def padded(size: int, multiple: int) -> int:
    """The smallest multiple that is no smaller than a size."""
    return -(-size // multiple) * multiple


def zeros(size: int, dtype: Any = np.float32) -> Array:
    """A flat array of zeros that begins at a cache line."""
    kind = np.dtype(dtype)
    raw = np.zeros(size * kind.itemsize + 64, dtype=np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + size * kind.itemsize].view(kind)


def power_tables(nu: float) -> tuple[Array, Array]:
    """nu^k and nu (1 - nu^k) / (1 - nu) for k below POWERS; what is too small to matter is zero."""
    decay = nu ** np.arange(POWERS, dtype=np.float64)
    drift = nu * (1.0 - decay) / (1.0 - nu)
    return np.where(decay < 1e-30, 0.0, decay).astype(np.float32), drift.astype(np.float32)


def nibbler_settings(
    config: NibblerConfig, num_features: int, num_actions: int, seed: int
) -> NibblerSettings:
    """The constants that the compiled functions need for a config and a problem's size."""
    config.validate_for(num_features, num_actions)
    columns = padded(config.num_questions + 1, 16)
    return NibblerSettings(
        num_questions=config.num_questions,
        inputs_per_question=config.inputs_per_question,
        num_rows=config.rows_per_question,
        hidden_units=config.hidden_units,
        units=padded(config.hidden_units, UNIT_BLOCK),
        num_lines=MAIN_Q + (1 + LINES_PER_ACTION) * num_actions,
        num_features=num_features,
        num_actions=num_actions,
        columns=columns,
        words=-(-columns // 64),
        blocks=-(-num_features // FEATURE_BLOCK),
        answer_alpha=np.float32(config.answer_alpha),
        main_alpha=np.float32(config.main_alpha),
        linear_alpha=np.float32(config.linear_alpha),
        nu=np.float32(config.momentum),
        gain=np.float32(1.0 - config.momentum),
        linear_nu=np.float32(config.linear_momentum),
        linear_gain=np.float32(1.0 - config.linear_momentum),
        exact_nu=float(config.momentum),
        spread=weight_spread(config.inputs_per_question),
        random_swaps=config.swapped_input == "random",
        random_questions=config.changed_question == "random",
        has_linear_momentum=config.linear_momentum > 0.0,
        explore_below=np.uint64(exploration_threshold(config.epsilon)),
        seed=np.uint64(seed),
    )


def nibbler_arrays(s: NibblerSettings, config: NibblerConfig, max_active: int) -> NibblerArrays:
    """Room for a run's state; `load_canonical` fills it."""
    h, slots, dense = s.num_questions, 1 + s.num_actions, config.linear_momentum > 0
    decay, drift = power_tables(config.momentum)
    threshold, bootstraps = zeros(s.columns), zeros(s.columns)
    threshold[:h], threshold[h] = config.input_threshold, config.cumulant_threshold
    bootstraps[:h] = 1.0
    wide = max(s.inputs_per_question, h) > np.iinfo(np.int16).max
    return NibblerArrays(
        hidden=zeros(h * s.num_rows * 2 * s.units),
        touched=zeros(h * s.num_rows, np.int64),
        heads=zeros(h * s.num_lines * s.units),
        base=zeros(s.num_features * slots),
        base_momentum=zeros(s.num_features * slots),
        base_touched=zeros(s.num_features * slots, np.int64),
        base_clock=zeros(slots, np.int64),
        support=zeros(s.num_features * s.columns),
        support_momentum=zeros(s.num_features * s.columns if dense else 0),
        inputs=np.zeros((h, s.inputs_per_question), dtype=np.int32),
        cumulants=np.zeros(h, dtype=np.int32),
        position=zeros(s.num_features * s.columns, np.int32 if wide else np.int16),
        member_bits=zeros(s.num_features * s.words, np.uint64),
        low=zeros(s.columns),
        high=zeros(s.columns),
        block_high=zeros(s.blocks * s.columns),
        threshold=threshold,
        bootstraps=bootstraps,
        cumulant=zeros(s.columns),
        linear_now=zeros(s.columns),
        linear_next=zeros(s.columns),
        active=np.zeros(max_active, dtype=np.int32),
        active_next=np.zeros(max_active, dtype=np.int32),
        active_before=np.zeros(max_active, dtype=np.int32),
        is_active=np.zeros(s.num_features, dtype=np.uint8),
        mark=np.zeros(s.num_features, dtype=np.uint8),
        list_rows=zeros(h * s.num_rows, np.int32),
        list_count=zeros(h, np.int32),
        enter_rows=zeros(2 * h * s.num_rows, np.int32),
        enter_count=zeros(2 * h, np.int32),
        leave_rows=zeros(2 * h * s.num_rows, np.int32),
        leave_count=zeros(2 * h, np.int32),
        left=zeros(h * s.num_rows, np.int64),
        swap=np.full(h, -1, dtype=np.int32),
        renewed=np.zeros(h, dtype=np.uint8),
        error_v=zeros(h),
        error_q=zeros(h),
        main_error=zeros(2),
        row_offset=zeros(2 * s.num_rows, np.int64),
        row_sign=zeros(2 * s.num_rows),
        row_drift=zeros(2 * s.num_rows),
        row_decay=zeros(2 * s.num_rows),
        gradient=zeros(s.units),
        next_features=zeros(s.units),
        q_values=zeros(s.num_actions, np.float64),
        decay=decay,
        drift=drift,
        clock=zeros(CLOCK_SIZE, np.int64),
        input_swaps=np.zeros(h, dtype=np.int64),
        answer_error_sum=np.zeros(h),
        main_error_sum=np.zeros(1),
    )


def canonical_views(s: NibblerSettings, a: NibblerArrays) -> dict[str, Array]:
    """Every canonical float array as a view of this engine's memory, in the canonical order of dimensions."""
    h, d, m = s.num_questions, s.hidden_units, s.num_features
    hidden = a.hidden.reshape(h, s.num_rows, 2, s.units)[..., :d]
    heads = a.heads.reshape(h, s.num_lines, s.units)[..., :d]
    actions = heads[:, MAIN_Q + s.num_actions :].reshape(h, s.num_actions, LINES_PER_ACTION, d)
    base = a.base.reshape(m, 1 + s.num_actions).T
    base_momentum = a.base_momentum.reshape(m, 1 + s.num_actions).T
    base_touched = a.base_touched.reshape(m, 1 + s.num_actions).T
    support = a.support.reshape(m, s.columns).T
    views = {
        "hidden_weights": hidden[:, :, 0],
        "hidden_momentum": hidden[:, :, 1],
        "hidden_touched": a.touched.reshape(h, s.num_rows),
        "answer_v": heads[:, ANSWER_V],
        "answer_v_momentum": heads[:, ANSWER_V + 1],
        "main_v_hidden": heads[:, MAIN_V],
        "main_v_hidden_momentum": heads[:, MAIN_V + 1],
        "answer_q": actions[:, :, 0],
        "answer_q_momentum": actions[:, :, 1],
        "main_q_hidden": heads[:, MAIN_Q : MAIN_Q + s.num_actions].transpose(1, 0, 2),
        "main_q_hidden_momentum": actions[:, :, 2].transpose(1, 0, 2),
        "main_v_base": base[0],
        "main_v_base_momentum": base_momentum[0],
        "main_v_base_touched": base_touched[0],
        "main_q_base": base[1:],
        "main_q_base_momentum": base_momentum[1:],
        "main_q_base_touched": base_touched[1:],
        "support": support[:h],
        "discovery": support[h],
        "action_counts": a.base_clock[1:],
        "inputs": a.inputs,
        "cumulants": a.cumulants,
        "input_swaps": a.input_swaps,
        "answer_error": a.answer_error_sum,
        "main_error": a.main_error_sum.reshape(()) if a.main_error_sum.size == 1 else a.main_error_sum,
        "cumulant_swaps": a.clock[CUMULANT_SWAPS : CUMULANT_SWAPS + 1].reshape(()),
        "weights_touched": a.clock[WEIGHTS_TOUCHED : WEIGHTS_TOUCHED + 1].reshape(()),
        "step": a.clock[STEP : STEP + 1].reshape(()),
        "action": a.clock[ACTION_NOW : ACTION_NOW + 1].reshape(()),
    }
    if a.support_momentum.size:
        momentum = a.support_momentum.reshape(m, s.columns).T
        views |= {"support_momentum": momentum[:h], "discovery_momentum": momentum[h]}
    return views


def export_canonical(s: NibblerSettings, a: NibblerArrays) -> dict[str, Array]:
    """Copies of everything that is learned, under the canonical names (nothing may be pending)."""
    state = {name: np.array(view, order="C") for name, view in canonical_views(s, a).items()}
    state["active"] = a.active[: a.clock[COUNT_NOW]].copy()
    state["active_before"] = a.active_before[: a.clock[COUNT_BEFORE]].copy()
    state["renewed"] = a.renewed.copy()
    return state


def load_canonical(s: NibblerSettings, a: NibblerArrays, state: Mapping[str, Array]) -> None:
    """Take over a canonical state (of any engine), and rebuild what follows from it."""
    a.clock[:] = 0
    for name, view in canonical_views(s, a).items():
        if name in state:
            given = np.asarray(state[name])
            if given.shape != view.shape:
                raise ValueError(f"{name} has shape {given.shape} in this state; this run needs {view.shape}")
            view[...] = given
    active = np.asarray(state["active"], dtype=np.int32)
    if active.size > a.active.size:
        raise ValueError(
            f"{active.size} active features in this state; this run has room for {a.active.size}"
        )
    a.active[: active.size] = active
    a.is_active[:] = 0
    a.is_active[active] = 1
    a.base_clock[0] = a.clock[STEP]
    a.clock[COUNT_NOW] = active.size
    # How the rows of x_t are summed, so that a run that goes on rounds alike; other engines do not know.
    before = np.asarray(state.get("active_before", active), dtype=np.int32)
    a.active_before[: before.size] = before
    a.clock[COUNT_BEFORE] = before.size
    a.renewed[:] = state.get("renewed", 1)
    a.left[:] = -1
    a.mark[:] = 0
    a.clock[CHANGED_QUESTION] = -1
    a.swap[:] = -1
    _rebuild_selection(s, a)


def _rebuild_selection(s: NibblerSettings, a: NibblerArrays) -> None:
    """Positions, membership bits and bounds from the selections and weights; the bounds come out exact."""
    h, m = s.num_questions, s.num_features
    position = a.position.reshape(m, s.columns)
    position[...] = -1
    questions = np.arange(h)[:, None]
    position[a.inputs, questions] = np.arange(s.inputs_per_question)
    position[a.cumulants, h] = np.arange(h)
    bits = a.member_bits.reshape(m, s.words)
    bits[...] = 0
    utility = np.abs(a.support.reshape(m, s.columns))
    a.low[:] = np.inf
    block_high = a.block_high.reshape(s.blocks, s.columns)
    for column in range(h + 1):
        member = position[:, column] >= 0
        bits[member, column // 64] |= np.uint64(1) << np.uint64(column % 64)
        a.low[column] = utility[member, column].min()
    unselected = np.where(position[:, : h + 1] >= 0, np.float32(-1.0), utility[:, : h + 1])
    block_high[...] = -1.0
    block_high[:, : h + 1] = np.maximum.reduceat(unselected, np.arange(0, m, FEATURE_BLOCK), axis=0)
    a.high[:] = block_high.max(axis=0)
