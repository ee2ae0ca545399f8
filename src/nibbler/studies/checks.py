"""Checks of the paper's claims: each returns whether a claim holds and the numbers, or says what is missing.

A check is strict about what it knows. It wants finished runs of two seeds for every setting that it needs,
and the whole confidence interval on one side of a bound. A failure to learn counts only in a run of a million
steps per board (the paper has 1.25 million).
"""

from __future__ import annotations

from typing import Any

from nibbler.studies.metrics import Estimate, final_reward, format_estimate, format_quantity, share_of_planner
from nibbler.studies.results import Measured, StudyResults, agent_label

LONG_ENOUGH = 1_000_000  # steps per board before a failure to learn counts
LINEAR_RANGE = (0.75, 1.25)  # exponents that we call "nearly linear"
LARGE_PROBLEM = 16  # boards from which on a steep ratio counts as curving up
SAME_SLOPE = 0.1  # exponents whose intervals are no further apart are not measurably different
BASELINES = ("q-learning", "qv-learning", "rainbow")


class NotEnoughDataError(Exception):
    """A check that lacks something says what."""


def needed(results: StudyResults, agent: str, boards: int, **varied: Any) -> Measured:
    """A setting with finished runs of two seeds at least."""
    found = results.get(agent, boards, **varied)
    extra = "".join(f", {k.replace('_', ' ')} {v}" for k, v in varied.items())
    name = f"{agent_label(agent)} on {boards} boards{extra}"
    if found is None:
        raise NotEnoughDataError(f"{name} has not been run")
    if not found.complete:
        raise NotEnoughDataError(f"{name} is not finished")
    if found.curves.num_seeds < 2:
        raise NotEnoughDataError(f"{name} has one seed only")
    return found


def side(estimate: Estimate, bound: float, name: str) -> bool:
    """Whether an estimate lies above a bound with its whole interval; undecided is not enough data."""
    if estimate.low > bound:
        return True
    if estimate.high < bound:
        return False
    raise NotEnoughDataError(f"{name} is {format_estimate(estimate, 3)}, which does not settle {bound:g}")


def learned(results: StudyResults, measured: Measured) -> bool:
    """Whether a setting reached the threshold; a failure counts only in a long run."""
    setting = measured.setting
    steps = results.to_threshold(setting.agent, **dict(setting.varied))[setting.boards]
    if not steps.reached and measured.curves.steps < LONG_ENOUGH * setting.boards:
        raise NotEnoughDataError(
            f"{setting} has {format_quantity(measured.curves.steps)} steps; a failure counts from "
            f"{format_quantity(LONG_ENOUGH * setting.boards)} on"
        )
    return steps.reached


def steps_text(results: StudyResults, agent: str, **varied: Any) -> str:
    """Steps to threshold by size, as text."""
    by_boards = results.to_threshold(agent, **varied)
    return ", ".join(f"{n}: {format_estimate(e, with_interval=False)}" for n, e in by_boards.items())


def share(measured: Measured) -> Estimate:
    """Final reward between random (0) and planner (1)."""
    if measured.lines.random is None or measured.lines.planner is None:
        raise NotEnoughDataError(f"{measured.setting} has no planner line yet")
    return share_of_planner(final_reward(measured.curves), measured.lines.random, measured.lines.planner)


# Curves and scaling


def all_learn_small_problems(results: StudyResults) -> tuple[bool, str]:
    agents = ["nibbler", "q-learning", "qv-learning", *(["rainbow"] if "rainbow" in results.agents else [])]
    outcome = {(a, n): learned(results, needed(results, a, n)) for a in agents for n in (2, 4, 8)}
    missed = [f"{agent_label(a)} on {n}" for (a, n), reached in outcome.items() if not reached]
    absent = [agent_label(a) for a in BASELINES if a not in agents]
    text = f"not reached: {', '.join(missed)}" if missed else "all reached reward 0 on 2, 4 and 8 boards"
    return not missed, text + (f" ({', '.join(absent)} not run)" if absent else "")


def only_nibbler_learns_128(results: StudyResults) -> tuple[bool, str]:
    ours = side(final_reward(needed(results, "nibbler", 128).curves), 0.0, "Nibbler's final reward")
    present = [a for a in BASELINES if a in results.agents]
    others = {a: final_reward(needed(results, a, 128).curves) for a in present}
    if not others:
        raise NotEnoughDataError("no baseline has been run on 128 boards")
    good = [agent_label(a) for a, e in others.items() if side(e, 0.0, agent_label(a))]
    text = ", ".join(f"{agent_label(a)} {e.value:.3f}" for a, e in others.items())
    return ours and not good, f"final reward on 128 boards: {text}"


def nibbler_reaches_004_on_32(results: StudyResults) -> tuple[bool, str]:
    measured = needed(results, "nibbler", 32)
    if measured.curves.steps < 40_000_000:
        raise NotEnoughDataError(f"{format_quantity(measured.curves.steps)} steps of the paper's 40M")
    reward = final_reward(measured.curves)
    return side(reward, 0.04, "the final reward"), f"final reward {format_estimate(reward, 4)}"


def linear_fails(results: StudyResults) -> tuple[bool, str]:
    sizes = [n for n in results.boards if results.get("linear", n) is not None]
    if not sizes:
        raise NotEnoughDataError("linear Q has not been run")
    failed, texts = True, []
    for n in sizes:
        linear = needed(results, "linear", n)
        reached = learned(results, linear)
        failed = failed and not reached
        texts.append(f"{n} boards: {'reached' if reached else f'{final_reward(linear.curves).value:.3f}'}")
    return failed, "final reward of linear Q on " + ", ".join(texts)


def nibbler_is_nearly_linear(results: StudyResults, agent: str = "nibbler") -> tuple[bool, str]:
    law = results.power_law(agent)
    if len(law.fitted) < 3:
        raise NotEnoughDataError(f"sizes that reached the threshold: {len(law.fitted)}; a trend needs three")
    for n in law.fitted:
        needed(results, agent, n)
    ratios = ", ".join(
        f"{n}→{2 * n}: {format_estimate(e, 2, with_interval=False)}"
        for n, e in results.doubling_ratios(agent).items()
    )
    fitted = f"over {law.fitted[0]} to {law.fitted[-1]} boards"
    text = f"exponent {format_estimate(law.exponent, 2)} {fitted}; doubling ratios {ratios}"
    if law.not_reached:
        text += f"; not reached on {', '.join(map(str, law.not_reached))}"
    low, high = LINEAR_RANGE
    return low <= law.exponent.value <= high and not law.not_reached, text


def _curves_up(ratio: Estimate, ours: Estimate | None) -> bool:
    """Whether a doubling costs more than 3 times the steps, and clearly more than it costs Nibbler."""
    least = ratio.value if ratio.reached else ratio.bound  # nan compares as False
    usual = ours.value if ours is not None and ours.reached else 2.0
    return least > 3.0 and least > 1.5 * usual


def baselines_curve_up(results: StudyResults) -> tuple[bool, str]:
    ours = results.to_threshold("nibbler")
    reached = [n for n, e in ours.items() if e.reached]
    present = [a for a in BASELINES if a in results.agents]
    if not reached or not present:
        raise NotEnoughDataError("needs Nibbler and a baseline on sizes that Nibbler learns")
    ratios = results.doubling_ratios("nibbler")
    texts, undecided = [], []
    for agent in present:
        missed = [n for n in reached if (m := results.get(agent, n)) and not learned(results, m)]
        steep = [
            n
            for n, e in results.doubling_ratios(agent).items()
            if n >= LARGE_PROBLEM and _curves_up(e, ratios.get(n))
        ]
        if missed or steep:
            if missed:
                where = f"not reached on {missed[0]}"
            else:
                ratio = results.doubling_ratios(agent)[steep[0]]
                where = f"ratio {format_estimate(ratio, 2, with_interval=False)} at {steep[0]}→{2 * steep[0]}"
            texts.append(f"{agent_label(agent)}: {where}")
        else:
            undecided.append(agent)
    if undecided and max(results.boards) < 128:
        names = ", ".join(map(agent_label, undecided))
        raise NotEnoughDataError(
            f"still learning on {max(results.boards)} boards: {names}; the claim is about 128"
        )
    return not undecided, "; ".join(texts) or "no baseline slows down more than Nibbler"


# The Q-learning sweep


def _sweep(results: StudyResults, boards: int) -> dict[str, Estimate]:
    part = results.only(agent="q-learning", boards=boards)
    if not part.measured:
        raise NotEnoughDataError(f"no setting of Q-learning has been run on {boards} boards")
    found = {}
    for m in part:
        needed(results, "q-learning", boards, **dict(m.setting.varied))
        found[str(m.setting)] = final_reward(m.curves)
    return found


def q_succeeds_widely_on_8(results: StudyResults) -> tuple[bool, str]:
    rewards = _sweep(results, 8)
    good = sum(e.value > 0.0 for e in rewards.values())
    text = f"{good} of {len(rewards)} settings end above 0; best {max(e.value for e in rewards.values()):.3f}"
    return good >= len(rewards) / 3, text


def q_fails_everywhere_on_32(results: StudyResults) -> tuple[bool, str]:
    rewards = _sweep(results, 32)
    steps = min(m.curves.steps for m in results.only(agent="q-learning", boards=32))
    best = max(rewards, key=lambda name: rewards[name].value)
    text = f"best of {len(rewards)}: {best}, {rewards[best].value:.3f}"
    if steps < 40_000_000:
        raise NotEnoughDataError(f"{format_quantity(steps)} steps of the paper's 40M; {text}")
    return rewards[best].value <= -0.05, text


# Hidden units


def _more_units_are_faster(results: StudyResults, agent: str) -> tuple[bool, str]:
    units = results.only(agent=agent).values("hidden_units")
    if len(units) < 2:
        raise NotEnoughDataError(f"{agent_label(agent)} has been run with fewer than two sizes")
    few, many = units[0], units[-1]
    compared, faster = [], []
    for n in results.only(agent=agent).boards:
        small = needed(results, agent, n, hidden_units=few)
        large = needed(results, agent, n, hidden_units=many)
        slow = results.to_threshold(agent, hidden_units=few)[n]
        fast = results.to_threshold(agent, hidden_units=many)[n]
        if not fast.reached and not slow.reached:
            continue  # this size says nothing about which is faster
        learned(results, small if not slow.reached else large)
        compared.append(
            f"{n} boards: {format_estimate(slow, with_interval=False)} → "
            f"{format_estimate(fast, with_interval=False)}"
        )
        faster.append(fast.value < slow.value)
    if not compared:
        raise NotEnoughDataError("neither the smallest nor the largest network reached the threshold")
    return all(faster), f"{few} → {many} units, steps on " + ", ".join(compared)


def nibbler_gains_from_units(results: StudyResults) -> tuple[bool, str]:
    return _more_units_are_faster(results, "nibbler")


def q_gains_from_units(results: StudyResults) -> tuple[bool, str]:
    return _more_units_are_faster(results, "q-learning")


def units_do_not_change_the_slope(results: StudyResults) -> tuple[bool, str]:
    if not results.agents:
        raise NotEnoughDataError("nothing has been run")
    texts, overlap = [], []
    for agent in results.agents:
        sizes = results.only(agent=agent).values("hidden_units")
        laws = {d: results.power_law(agent, hidden_units=d) for d in sizes}
        firm = {d: law for d, law in laws.items() if len(law.fitted) >= 3 and law.exponent.has_interval}
        if len(firm) < 2:
            raise NotEnoughDataError(
                f"{agent_label(agent)} has fewer than two network sizes with a trend over three sizes"
            )
        lowest = max(law.exponent.low for law in firm.values())
        highest = min(law.exponent.high for law in firm.values())
        overlap.append(lowest <= highest + SAME_SLOPE)
        texts.append(
            f"{agent_label(agent)} " + ", ".join(f"{d}: {law.exponent.value:.2f}" for d, law in firm.items())
        )
    return all(overlap), "exponents by units: " + "; ".join(texts)


def weak_nibbler_beats_large_q(results: StudyResults) -> tuple[bool, str]:
    ours = needed(results, "nibbler", 16, hidden_units=32)
    theirs = needed(results, "q-learning", 16, hidden_units=1024)
    reward, other = final_reward(ours.curves), final_reward(theirs.curves)
    better = side(reward, other.high, "Nibbler's final reward")
    faster = ours.seconds_per_step < theirs.seconds_per_step
    text = (
        f"reward {reward.value:.3f} against {other.value:.3f}; "
        f"{1 / ours.seconds_per_step:,.0f} against {1 / theirs.seconds_per_step:,.0f} steps/s"
    )
    return better and faster, text


# Heterogeneous boards


def varied_boards_are_learned(results: StudyResults) -> tuple[bool, str]:
    reached = {
        n: learned(results, needed(results, "nibbler", n)) for n in results.only(agent="nibbler").boards
    }
    if not reached:
        raise NotEnoughDataError("Nibbler has not been run")
    return all(reached.values()), f"steps on boards {steps_text(results, 'nibbler')}"


def varied_boards_scale(results: StudyResults) -> tuple[bool, str]:
    outcomes = {agent: nibbler_is_nearly_linear(results, agent) for agent in ("nibbler", "nibbler+")}
    texts = [f"{agent_label(agent)}: {text}" for agent, (_, text) in outcomes.items()]
    return all(holds for holds, _ in outcomes.values()), "; ".join(texts)


def noisy_wind_is_worse(results: StudyResults) -> tuple[bool, str]:
    sizes = results.only(agent="nibbler, noisy wind").boards
    if not sizes:
        raise NotEnoughDataError("the noisy wind has not been run")
    n = sizes[-1]
    noisy, plain = (share(needed(results, agent, n)) for agent in ("nibbler, noisy wind", "nibbler"))
    if plain.value < 0.5:
        raise NotEnoughDataError(
            f"without noise Nibbler is at {plain.value:.0%} of the way to the planner on {n} boards"
        )
    text = (
        f"on {n} boards {noisy.value:.0%} of the way from random to planner, {plain.value:.0%} without noise"
    )
    return noisy.high < plain.low and noisy.value < plain.value - 0.2, text


# Appendix B


def fixed_nibbler_collapses(results: StudyResults) -> tuple[bool, str]:
    sizes = results.only(agent="nibbler").boards
    if len(sizes) < 2:
        raise NotEnoughDataError("one problem size only")
    rewards = {n: needed(results, "nibbler", n) for n in sizes}
    smallest, largest = learned(results, rewards[sizes[0]]), learned(results, rewards[sizes[-1]])
    text = ", ".join(f"{n} boards: {final_reward(m.curves).value:.3f}" for n, m in rewards.items())
    return smallest and not largest, f"final reward on {text}"


def too_few_questions_collapse(results: StudyResults) -> tuple[bool, str]:
    boards = results.boards[0] if results.boards else 0
    grid = results.values("num_questions")
    few, enough = [h for h in grid if h <= boards], [h for h in grid if h >= 2 * boards]
    if not few or not enough:
        raise NotEnoughDataError("needs a number of questions of at most one, and of at least two per board")
    reached = {h: learned(results, needed(results, "nibbler", boards, num_questions=h)) for h in few + enough}
    text = ", ".join(
        f"{h}: {e.value:.3f}" for h in grid if (e := results.final_reward("nibbler", boards, num_questions=h))
    )
    holds = all(reached[h] for h in enough) and not any(reached[h] for h in few)
    return holds, f"final reward by questions on {boards} boards: {text}"


def _inputs(results: StudyResults) -> tuple[int, dict[int, Measured], dict[int, float]]:
    if not results.boards:
        raise NotEnoughDataError("nothing has been run")
    boards, grid = results.boards[0], results.values("inputs_per_question")
    found = {g: needed(results, "nibbler", boards, inputs_per_question=g) for g in grid}
    shares = {g: share(m).value for g, m in found.items()}
    right = [g for g in grid if 50 <= g <= 82]
    if not right or max(shares[g] for g in right) < 0.5:
        raise NotEnoughDataError("with 50 to 82 inputs Nibbler has not come half of the way to the planner")
    return boards, found, shares


def few_inputs_hurt(results: StudyResults) -> tuple[bool, str]:
    _, found, shares = _inputs(results)
    few = [g for g in found if g <= 30]
    if not few:
        raise NotEnoughDataError("no run with 30 inputs or fewer")
    best = max(shares[g] for g in found if 50 <= g <= 82)
    text = ", ".join(f"{g}: {shares[g]:.0%}" for g in found)
    return all(shares[g] < best - 0.2 for g in few), f"share of the planner by inputs: {text}"


def extra_inputs_only_slow_down(results: StudyResults) -> tuple[bool, str]:
    boards, found, shares = _inputs(results)
    many, right = [g for g in found if g >= 70], [g for g in found if 50 <= g < 70]
    if not many or not right:
        raise NotEnoughDataError("needs runs with 50 to 69 inputs and with 70 or more")
    best = max(shares[g] for g in right)
    similar = all(shares[g] > best - 0.1 for g in many)
    fewest = min(results.to_threshold("nibbler", inputs_per_question=g)[boards].value for g in right)
    most = results.to_threshold("nibbler", inputs_per_question=max(many))[boards]
    text = (
        f"{max(many)} inputs: {shares[max(many)]:.0%} of the planner after {format_estimate(most)} steps; "
        f"{right[-1]} inputs: {shares[right[-1]]:.0%} after {format_quantity(fewest)}"
    )
    return similar and most.value >= fewest, text
