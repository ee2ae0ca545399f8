"""Checks of the claims about curves, scaling and the Q-learning sweep.

A check returns whether a claim holds and the numbers, or says what is missing (`NotEnoughDataError`).
"""

from __future__ import annotations

from typing import Any

from nibbler.studies.evidence import Evidence, NotEnoughDataError, reward_text, side
from nibbler.studies.metrics import CurveSet, Estimate, final_reward, format_estimate, format_quantity
from nibbler.studies.results import LARGE_PROBLEM, Measured, Setting, agent_label

LINEAR_RANGE = (0.75, 1.25)  # exponents that we call "nearly linear"
LEAST_SHARE_OF_SWEEP = 0.2  # of the planned settings, before a sweep says anything
ROUGHLY_TWICE = (1.5, 2.5)  # doubling ratios that we call "roughly twice"
BASELINES = ("q-learning", "qv-learning", "rainbow")
SMALL = (2, 4, 8)


def all_learn_small_problems(e: Evidence) -> tuple[bool, str]:
    found = {a: {n: e.needed(a, n) for n in SMALL} for a in ("nibbler", "q-learning", "qv-learning")}
    learned = [e.learned(m) for by_size in found.values() for m in by_size.values()]
    rainbow = e.usable("rainbow", SMALL, whole=False)
    outcome = e.decided(rainbow)
    learned += outcome.values()
    found["rainbow"] = {n: rainbow[n] for n in outcome}
    texts = [f"{agent_label(a)} {e.steps_text(by_size.values())}" for a, by_size in found.items() if by_size]
    return all(learned), f"steps to reward 0 by boards: {'; '.join(texts)}"


def nibbler_outperforms(e: Evidence) -> tuple[bool, str]:
    sizes = [n for n in e.sizes("nibbler") if n >= LARGE_PROBLEM]
    ours = e.usable("nibbler", sizes)
    better, texts = [], []
    for agent in BASELINES:
        theirs = {n: m for n, m in e.comparable(e.usable(agent, sizes)).items() if n in ours}
        if not theirs:
            continue
        n = max(theirs)
        # After the same experience: one run may be longer than the other.
        steps = min(ours[n].curves.steps, theirs[n].curves.steps)
        mine, other = (final_reward(m.curves.first(steps)) for m in (ours[n], theirs[n]))
        better.append(mine.low > other.high)
        if not better[-1] and mine.high >= other.low:
            raise NotEnoughDataError(
                f"the intervals of Nibbler and {agent_label(agent)} on {n} boards overlap"
            )
        theirs_text = f"{agent_label(agent)}'s {format_estimate(other, 3)}"
        where = f"on {n} boards after {format_quantity(steps)} steps"
        texts.append(f"{format_estimate(mine, 3)} against {theirs_text} {where}")
    if not better:
        raise NotEnoughDataError(f"no baseline has been run beside Nibbler on {LARGE_PROBLEM} boards or more")
    return all(better), f"reward: {'; '.join(texts)}"


def only_nibbler_learns_128(e: Evidence) -> tuple[bool, str]:
    # One long run that learns, or stays at the random line, is telling, whatever another seed does.
    ours = e.needed("nibbler", 128, whole=False, seeds=1)
    others = {a: m for a in BASELINES if (m := e.offered(a, 128, whole=False, seeds=1)) is not None}
    if not others:
        raise NotEnoughDataError("no baseline has been run on 128 boards")
    good = [a for a, m in others.items() if e.learned(m)]
    text = ", ".join(f"{agent_label(a)} {reward_text(m)}" for a, m in others.items())
    return e.learned(ours) and not good, f"final reward on 128 boards: Nibbler {reward_text(ours)}, {text}"


def rainbow_ends_highest(e: Evidence) -> tuple[bool, str]:
    rainbow = e.usable("rainbow", SMALL, whole=False)
    if not rainbow:
        raise NotEnoughDataError("Rainbow has not been run with two seeds on 2, 4 or 8 boards")
    higher, texts = [], []
    for n, m in rainbow.items():
        others = [e.needed(a, n) for a in ("nibbler", "q-learning", "qv-learning")]
        best = max(others, key=lambda other: final_reward(other.curves).value)
        mine, theirs = final_reward(m.curves), final_reward(best.curves)
        text = f"{reward_text(m)} against {agent_label(best.setting.agent)}'s {reward_text(best)}"
        # A short run may still rise, so only a long one can end lower.
        if mine.low > theirs.high or (mine.high < theirs.low and m.curves.steps >= e.long_enough(n)):
            higher.append(mine.low > theirs.high)
            texts.append(f"{n}: {text}")
        else:
            e.note(m.setting, f"{text} after {format_quantity(m.curves.steps)} steps settles nothing")
    if not higher:
        raise NotEnoughDataError("no size where Rainbow is clearly higher, or lower after a long run")
    return all(
        higher
    ), f"final reward by boards, Rainbow's against the best of the others: {'; '.join(texts)}"


def nibbler_reaches_004_on_32(e: Evidence) -> tuple[bool, str]:
    found = e.results.only(agent="nibbler", boards=32).measured
    if len(found) > 1:
        raise NotEnoughDataError("several Nibblers on 32 boards")
    measured = e.needed("nibbler", 32, **dict(found[0].setting.varied) if found else {})
    if measured.curves.steps < 40_000_000:
        raise NotEnoughDataError("Nibbler on 32 boards has fewer steps than the paper's 40M")
    reward = final_reward(measured.curves)
    text = f"final reward {format_estimate(reward, 4)}, lowest seed {lowest_seed(measured):.4f}"
    return side(reward, 0.04, "the final reward"), text


def lowest_seed(measured: Measured) -> float:
    """Final reward of the worst seed."""
    curves = measured.curves
    return min(final_reward(CurveSet(line[None], curves.bin_size)).value for line in curves.rewards)


def nibbler_is_reliable(e: Evidence) -> tuple[bool, str]:
    found = e.usable("nibbler")
    if len(found) < 3:
        raise NotEnoughDataError("Nibbler has been run to the end with two seeds on fewer than three sizes")
    worst = {n: lowest_seed(m) for n, m in found.items()}
    text = ", ".join(f"{n}: {value:.3f}" for n, value in worst.items())
    return min(worst.values()) > 0.0, f"final reward of the worst seed by boards: {text}"


def linear_fails(e: Evidence) -> tuple[bool, str]:
    found = e.usable("linear")
    if not found:
        raise NotEnoughDataError("linear Q has not been run to the end with two seeds")
    outcome = e.decided(found)
    if not outcome:
        raise NotEnoughDataError("the runs of linear Q are too short for a failure to count")
    text = ", ".join(f"{n}: {reward_text(found[n])}" for n in outcome)
    return not any(outcome.values()), f"final reward of linear Q by boards: {text}"


def nibbler_is_nearly_linear(e: Evidence, agent: str = "nibbler") -> tuple[bool, str]:
    found = e.usable(agent, whole=False, seeds=1)
    if sum(m.curves.num_seeds > 1 for m in found.values()) < 3:
        raise NotEnoughDataError(f"{agent_label(agent)} has two seeds on fewer than three sizes")
    outcome = e.decided(found)
    missed = [n for n, reached in outcome.items() if not reached]
    law = e.results.power_law(agent, only=[n for n, reached in outcome.items() if reached])
    if len(law.fitted) < 3:
        raise NotEnoughDataError(f"sizes that reached the threshold: {len(law.fitted)}; a trend needs three")
    text = f"exponent {format_estimate(law.exponent, 2)} over {law.fitted[0]} to {law.fitted[-1]} boards"
    if (large := e.results.power_law_of_large(agent)) is not None:
        text += f", {format_estimate(large.exponent, 2)} from {large.fitted[0]} on"
    if missed:
        text += f"; not reached on {', '.join(map(str, missed))}"
    low, high = LINEAR_RANGE
    return low <= law.exponent.value <= high and not missed, text


def doubling_costs_twice(e: Evidence) -> tuple[bool, str]:
    outcome = e.decided(e.usable("nibbler", whole=False, seeds=1))
    ratios = {
        n: r for n, r in e.results.doubling_ratios("nibbler").items() if outcome.get(n) and 2 * n in outcome
    }
    if len(ratios) < 2:
        raise NotEnoughDataError("needs two doublings of a size that Nibbler learned")
    low, high = ROUGHLY_TWICE
    text = ", ".join(f"{n} to {2 * n}: {format_estimate(r, 2)}" for n, r in ratios.items())
    return all(low <= r.value <= high for r in ratios.values()), f"doubling ratios {text}"


def _curves_up(ratio: Estimate, ours: Estimate | None) -> bool:
    """Whether a doubling costs more than 3 times the steps, and clearly more than it costs Nibbler."""
    least = ratio.value if ratio.reached else ratio.bound  # nan compares as False
    usual = ours.value if ours is not None and ours.reached else 2.0
    return least > 3.0 and least > 1.5 * usual


def baselines_curve_up(e: Evidence) -> tuple[bool, str]:
    results = e.results
    reached = [n for n, steps in results.to_threshold("nibbler").items() if steps.reached]
    present = [a for a in BASELINES if results.only(agent=a).measured]
    if not reached or not present:
        raise NotEnoughDataError("needs Nibbler and a baseline on sizes that Nibbler learns")
    ratios = results.doubling_ratios("nibbler")
    texts, level = [], []
    for agent in BASELINES:
        steep = {
            n: ratio
            for n, ratio in results.doubling_ratios(agent).items()
            if n >= LARGE_PROBLEM and _curves_up(ratio, ratios.get(n))
        }
        # From where it has curved up on, larger problems cannot change that.
        enough = [n for n in reached if n <= 2 * min(steep, default=reached[-1])]
        outcome: dict[int, bool] = {}
        for n in enough:
            outcome |= e.decided(e.usable(agent, [n], whole=False, seeds=1))
            if outcome.get(n) is False:
                break
        missed = [n for n, learned in outcome.items() if not learned]
        if missed:
            steps = format_estimate(results.to_threshold(agent)[missed[0]])
            texts.append(f"{agent_label(agent)}: not reached on {missed[0]} boards ({steps} steps)")
        elif steep:
            n, ratio = next(iter(steep.items()))
            texts.append(f"{agent_label(agent)}: ratio {format_estimate(ratio, 2)} from {n} to {2 * n}")
        elif 128 in outcome:
            texts.append(f"{agent_label(agent)}: learned 128 boards")
            level.append(agent)
    if not texts:
        raise NotEnoughDataError("no baseline has curved up yet, and the claim is about 128 boards")
    return not level, "; ".join(texts)


# The Q-learning sweep


def _sweep(e: Evidence, boards: int, **varied: Any) -> dict[str, Measured]:
    """The sweep's settings by name, or a part of them; those that are missing are counted, not listed."""
    part = e.results.only(agent="q-learning", boards=boards, **varied)
    found = {str(m.setting): m for m in part if m.whole and m.curves.num_seeds > 1}
    if len(found) < LEAST_SHARE_OF_SWEEP * max(1, len(part.planned)):
        raise NotEnoughDataError(
            f"{len(found)} of {len(part.planned)} settings of Q-learning have two seeds on {boards} boards"
        )
    if not found:
        raise NotEnoughDataError(f"no setting of Q-learning has been run with two seeds on {boards} boards")
    missing = len(part.planned) - len(found)
    if missing > 0:
        e.note(Setting("q-learning", boards, tuple(varied.items())), f"{missing} settings not run")
    return found


def _of_planned(e: Evidence, boards: int, found: dict[str, Measured]) -> str:
    planned = len(e.results.only(agent="q-learning", boards=boards).planned) or len(found)
    return f"{len(found)} settings" + ("" if planned == len(found) else f" (of {planned} planned)")


def q_succeeds_widely_on_8(e: Evidence) -> tuple[bool, str]:
    found = _sweep(e, 8)
    good = [m for m in found.values() if final_reward(m.curves).value > 0.0]
    best = max(found.values(), key=lambda m: final_reward(m.curves).value)
    text = f"{len(good)} of {_of_planned(e, 8, found)} end above 0; best {reward_text(best)}"
    return len(good) >= len(found) / 3, text


def _best_on_32(e: Evidence) -> tuple[Estimate, str]:
    found = _sweep(e, 32)
    if min(m.curves.steps for m in found.values()) < 40_000_000:
        raise NotEnoughDataError("the runs on 32 boards have fewer steps than the paper's 40M")
    name, best = max(found.items(), key=lambda item: final_reward(item[1].curves).value)
    return final_reward(best.curves), f"best of {_of_planned(e, 32, found)}: {name}, {reward_text(best)}"


def q_fails_everywhere_on_32(e: Evidence) -> tuple[bool, str]:
    best, text = _best_on_32(e)
    return best.value <= -0.05, text


def q_is_never_positive_on_32(e: Evidence) -> tuple[bool, str]:
    best, text = _best_on_32(e)
    return not side(best, 0.0, "the best setting"), text


def q_loses_at_every_step_size(e: Evidence) -> tuple[bool, str]:
    found = list(_sweep(e, 32, hidden_units=1024).values())
    ours = [m for m in e.results.only(agent="nibbler", boards=32) if m.whole and m.curves.num_seeds > 1]
    if len({m.setting.value("step_size") for m in found}) < 3 or not ours:
        raise NotEnoughDataError(
            "needs Nibbler and three step sizes of Q-learning with 1024 units on 32 boards"
        )
    best = max(found, key=lambda m: final_reward(m.curves).value)
    text = (
        f"Nibbler {reward_text(ours[0])}, best of {len(found)} settings with 1024 units {reward_text(best)}"
    )
    reward = final_reward(ours[0].curves)
    return side(reward, final_reward(best.curves).high, "Nibbler's final reward"), text + " (32 boards)"
