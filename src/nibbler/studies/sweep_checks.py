"""Checks of the claims about resources, varied boards, the appendix, the readings, and larger problems."""

from __future__ import annotations

from nibbler.studies.checks import ROUGHLY_TWICE, nibbler_is_nearly_linear
from nibbler.studies.evidence import Evidence, NotEnoughDataError, reward_text, share, share_text, side
from nibbler.studies.metrics import Estimate, doubling_ratios, final_reward, format_estimate
from nibbler.studies.results import Measured, agent_label

SAME_SLOPE = 0.1  # exponents whose intervals are no further apart are not measurably different

# Hidden units


def _more_units_are_faster(e: Evidence, agent: str) -> tuple[bool, str]:
    units = e.values("hidden_units", agent)
    if len(units) < 2:
        raise NotEnoughDataError(f"{agent_label(agent)} has been run with fewer than two sizes")
    compared, faster = [], []
    for n in e.sizes(agent):
        found = {d: m for d in units if (m := e.offered(agent, n, hidden_units=d)) is not None}
        if len(found) < 2:
            continue
        few, many = min(found), max(found)
        slow, fast = e.steps(found[few]), e.steps(found[many])
        if not fast.reached and not slow.reached:
            continue  # this size says nothing about which is faster
        e.learned(found[few] if not slow.reached else found[many])
        steps = f"{format_estimate(slow)} with {few} units, {format_estimate(fast)} with {many}"
        compared.append(f"{n} boards: {steps}")
        faster.append(fast.value < slow.value)
    if not compared:
        raise NotEnoughDataError("no size where the smallest or the largest network reached the threshold")
    return all(faster), f"steps to reward 0 on {'; '.join(compared)}"


def nibbler_gains_from_units(e: Evidence) -> tuple[bool, str]:
    return _more_units_are_faster(e, "nibbler")


def q_gains_from_units(e: Evidence) -> tuple[bool, str]:
    return _more_units_are_faster(e, "q-learning")


def _exponents(e: Evidence, agent: str) -> tuple[dict[int, Estimate], str]:
    """Exponents by network size, all over the same problem sizes, three at least; and these in words."""
    reached = {
        units: {n for n, m in e.usable(agent, hidden_units=units).items() if e.steps(m).reached}
        for units in e.values("hidden_units", agent)
    }
    trends = {units: sizes for units, sizes in reached.items() if len(sizes) >= 3}
    common = sorted(set.intersection(*trends.values())) if trends else []
    if len(common) < 3:
        return {}, ""
    laws = {u: e.results.power_law(agent, only=common, hidden_units=u).exponent for u in trends}
    exponents = {units: exponent for units, exponent in laws.items() if exponent.has_interval}
    values = ", ".join(f"{d} units {format_estimate(x, 2)}" for d, x in exponents.items())
    return exponents, f"{agent_label(agent)} over {common[0]} to {common[-1]} boards {values}"


def units_do_not_change_the_slope(e: Evidence) -> tuple[bool, str]:
    if not e.results.agents:
        raise NotEnoughDataError("nothing has been run")
    texts, overlap = [], []
    for agent in e.results.agents:
        exponents, text = _exponents(e, agent)
        if len(exponents) < 2:
            raise NotEnoughDataError(
                f"{agent_label(agent)} has fewer than two network sizes with a trend over three sizes"
            )
        lowest = max(x.low for x in exponents.values())
        highest = min(x.high for x in exponents.values())
        overlap.append(lowest <= highest + SAME_SLOPE)
        texts.append(text)
    return all(overlap), f"exponents: {'; '.join(texts)}"


def q_scales_worse_with_any_units(e: Evidence) -> tuple[bool, str]:
    (ours, our_text), (theirs, their_text) = _exponents(e, "nibbler"), _exponents(e, "q-learning")
    if not ours or len(theirs) < 2:
        raise NotEnoughDataError("needs a trend over three sizes of Nibbler and of two Q-networks")
    highest = max(ours.values(), key=lambda x: x.value)
    lowest = min(theirs.values(), key=lambda x: x.value)
    return side(lowest, highest.high, "Q-learning's lowest exponent"), f"exponents: {our_text}; {their_text}"


def weak_nibbler_beats_large_q(e: Evidence) -> tuple[bool, str]:
    ours = e.needed("nibbler", 16, hidden_units=32)
    theirs = e.needed("q-learning", 16, hidden_units=1024)
    if ours.engine != theirs.engine:
        raise NotEnoughDataError(f"times do not compare: Nibbler ran on {ours.engine}, Q on {theirs.engine}")
    other = final_reward(theirs.curves)
    better = side(final_reward(ours.curves), other.high, "Nibbler's final reward")
    faster = ours.seconds_per_step < theirs.seconds_per_step
    speeds = [f"{1 / m.seconds_per_step:,.0f}" for m in (ours, theirs)]
    weights = [f"{m.weights_per_step:,.0f}" for m in (ours, theirs)]
    text = (
        f"reward {reward_text(ours)} against {reward_text(theirs)}; {' against '.join(speeds)} steps/s, "
        f"as many seeds at once; {' against '.join(weights)} weights touched per step"
    )
    return better and faster, text


# Heterogeneous boards


def varied_boards_are_learned(e: Evidence) -> tuple[bool, str]:
    found = e.usable("nibbler")
    outcome = e.decided(found)
    if not outcome:
        raise NotEnoughDataError("Nibbler has not been run to the end with two seeds")
    return all(outcome.values()), f"steps to reward 0 by boards: {e.steps_text(found[n] for n in outcome)}"


def varied_boards_scale(e: Evidence) -> tuple[bool, str]:
    outcomes = {agent: nibbler_is_nearly_linear(e, agent) for agent in ("nibbler", "nibbler+")}
    texts = [f"{agent_label(agent)}: {text}" for agent, (_, text) in outcomes.items()]
    return all(holds for holds, _ in outcomes.values()), "; ".join(texts)


def noisy_wind_is_worse(e: Evidence) -> tuple[bool, str]:
    sizes = e.results.only(agent="Nibbler, noisy wind").boards
    if not sizes:
        raise NotEnoughDataError("the noisy wind has not been run")
    n = sizes[-1]
    noisy, plain = (share(e.needed(agent, n)) for agent in ("Nibbler, noisy wind", "nibbler"))
    if plain.value < 0.5:
        raise NotEnoughDataError(
            f"without noise Nibbler is at {share_text(plain)} of the way to the planner on {n} boards"
        )
    text = f"on {n} boards {share_text(noisy)} of the way from random to planner, {share_text(plain)} without"
    return noisy.high < plain.low and noisy.value < plain.value - 0.2, text + " noise"


# Appendix B


def fixed_nibbler_collapses(e: Evidence) -> tuple[bool, str]:
    found = e.usable("nibbler")
    outcome = e.decided(found)
    if len(outcome) < 2:
        raise NotEnoughDataError("one problem size only")
    smallest, *_, largest = sorted(outcome)
    text = ", ".join(f"{n}: {reward_text(found[n])}" for n in outcome)
    return outcome[smallest] and not outcome[largest], f"final reward by boards: {text}"


def too_few_questions_collapse(e: Evidence) -> tuple[bool, str]:
    boards = e.results.boards[0] if e.results.boards else 0
    found = {
        h: m
        for h in e.values("num_questions")
        if (m := e.offered("nibbler", boards, num_questions=h)) is not None
    }
    few, enough = [h for h in found if h <= boards], [h for h in found if h >= 2 * boards]
    if not few or not enough:
        raise NotEnoughDataError("needs a number of questions of at most one, and of at least two per board")
    text = ", ".join(f"{h}: {reward_text(m)}" for h, m in found.items())
    holds = all(e.learned(found[h]) for h in enough) and not any(e.learned(found[h]) for h in few)
    return holds, f"final reward by questions on {boards} boards: {text}"


def _inputs(e: Evidence) -> tuple[dict[int, Measured], dict[int, Estimate]]:
    """Settings by inputs per question, and their shares of the way to the planner."""
    if not e.results.boards:
        raise NotEnoughDataError("nothing has been run")
    boards = e.results.boards[0]
    found = {
        g: m
        for g in e.values("inputs_per_question")
        if (m := e.offered("nibbler", boards, inputs_per_question=g)) is not None
    }
    shares = {g: share(m) for g, m in found.items()}
    if max((shares[g].value for g in found if 50 <= g <= 82), default=0.0) < 0.5:
        raise NotEnoughDataError("with 50 to 82 inputs Nibbler has not come half of the way to the planner")
    return found, shares


def _shares_text(shares: dict[int, Estimate]) -> str:
    return "share of the planner by inputs: " + ", ".join(f"{g}: {share_text(s)}" for g, s in shares.items())


def few_inputs_hurt(e: Evidence) -> tuple[bool, str]:
    found, shares = _inputs(e)
    few = [g for g in found if g <= 30]
    if not few:
        raise NotEnoughDataError("no run with 30 inputs or fewer")
    best = max(shares[g].value for g in found if 50 <= g <= 82)
    return all(shares[g].value < best - 0.2 for g in few), _shares_text(shares)


def missing_a_few_inputs_is_harmless(e: Evidence) -> tuple[bool, str]:
    found, shares = _inputs(e)
    some, enough = [g for g in found if 45 <= g < 56], [g for g in found if 56 <= g <= 82]
    if not some or not enough:
        raise NotEnoughDataError("needs runs with 45 to 55 inputs and with 56 to 82")
    best = max(shares[g].value for g in enough)
    chosen = {g: shares[g] for g in some + enough}
    return all(shares[g].value > best - 0.1 for g in some), _shares_text(chosen)


def extra_inputs_only_slow_down(e: Evidence) -> tuple[bool, str]:
    found, shares = _inputs(e)
    many, right = [g for g in found if g >= 70], [g for g in found if 50 <= g < 70]
    if not many or not right:
        raise NotEnoughDataError("needs runs with 50 to 69 inputs and with 70 or more")
    best = max(shares[g].value for g in right)
    similar = all(shares[g].value > best - 0.1 for g in many)
    quickest = min((e.steps(found[g]) for g in right), key=lambda steps: steps.value)
    most = e.steps(found[max(many)])
    text = (
        f"{max(many)} inputs: {share_text(shares[max(many)])} of the planner, {format_estimate(most)} steps "
        f"to 0; {right[0]} to {right[-1]}: {share_text(shares[right[-1]])}, {format_estimate(quickest)}"
    )
    return similar and most.value >= quickest.value, text


# Ours: the threshold for swaps, the readings, the step size, and larger problems


def a_threshold_prevents_the_collapse(e: Evidence) -> tuple[bool, str]:
    boards = e.results.boards[0] if e.results.boards else 0
    better, texts = [], []
    for h in (h for h in e.values("num_questions") if h < 2 * boards):
        found = {
            tau: m
            for tau in e.values("cumulant_threshold", num_questions=h)
            if (m := e.offered("nibbler", boards, num_questions=h, cumulant_threshold=tau)) is not None
        }
        without = found.pop(0.0, None)
        if without is None or not found:
            continue
        with_it = ", ".join(f"{reward_text(m)} with {tau:g}" for tau, m in found.items())
        texts.append(f"{h}: {reward_text(without)} without, {with_it}")
        best = max((final_reward(m.curves) for m in found.values()), key=lambda reward: reward.value)
        better.append(best.low > final_reward(without.curves).high)
    if not texts:
        raise NotEnoughDataError("needs fewer than two questions per board, with a threshold and without")
    return all(better), f"final reward by questions on {boards} boards: {'; '.join(texts)}"


def literal_reading_learns(e: Evidence, literal: str = "all as written") -> tuple[bool, str]:
    found = e.usable(literal)
    outcome = e.decided(found)
    if not outcome:
        raise NotEnoughDataError("the text as written has not been run long enough with two seeds")
    text = ", ".join(f"{n}: {reward_text(found[n])}" for n in outcome)
    return all(outcome.values()), f"final reward by boards: {text}"


def no_reading_is_better(e: Evidence) -> tuple[bool, str]:
    better, texts = [], []
    found = e.usable("nibbler")
    for n in e.decided(found):
        default = found[n]
        others = [m for a in e.results.agents if a != "nibbler" and (m := e.offered(a, n)) is not None]
        if others:
            best = max(others, key=lambda m: final_reward(m.curves).value)
            better.append(final_reward(best.curves).low > final_reward(default.curves).high)
            name = agent_label(best.setting.agent)
            texts.append(f"{n} boards: default {reward_text(default)}, {name} {reward_text(best)}")
    if not texts:
        raise NotEnoughDataError("needs the default, run long enough, and another reading")
    return not any(better), f"final reward, and the best of the others, on {'; '.join(texts)}"


def step_size_makes_doublings_dear(e: Evidence, constant: str = "constant step size") -> tuple[bool, str]:
    sizes = e.sizes("nibbler")
    learned = {a: e.decided(e.usable(a, sizes, whole=False)) for a in ("nibbler", constant)}
    cheaper, texts = [], []
    ratios = {a: e.results.doubling_ratios(a) for a in learned}
    for n in sorted(ratios["nibbler"]):
        if all(outcome.get(n) and outcome.get(2 * n) for outcome in learned.values()):
            falling, level = ratios["nibbler"][n], ratios[constant][n]
            cheaper.append(level.high < falling.low)
            texts.append(f"{n} to {2 * n}: {format_estimate(falling, 2)}, {format_estimate(level, 2)}")
    if not cheaper:
        raise NotEnoughDataError("needs a doubling that Nibbler learns with either step size, with two seeds")
    return all(cheaper), f"doubling ratios, as in Table 1 and with a constant step size, {'; '.join(texts)}"


def nibbler_goes_on_scaling(e: Evidence) -> tuple[bool, str]:
    found = {n: m for n, m in e.usable("nibbler", whole=False, seeds=1).items() if n >= 32}
    outcome = e.decided(found)
    cheap, texts = [], []
    for n in (n for n in found if n >= 128 and 2 * n in found):
        if outcome.get(2 * n) is False:
            cheap.append(False)
            texts.append(f"{2 * n} boards: not reached ({format_estimate(e.steps(found[2 * n]))} steps)")
        elif (furthest := _furthest_ratio(e, n)) is not None:
            ratio, goal = furthest
            cheap.append(ratio.value <= ROUGHLY_TWICE[1])
            texts.append(f"{n} to {2 * n}: {format_estimate(ratio, 2)} to {goal}")
    if not cheap:
        raise NotEnoughDataError("nothing beyond 128 boards has come as far as the problem of half its size")
    return all(cheap), f"ratios of the steps, {'; '.join(texts)}"


def _furthest_ratio(e: Evidence, boards: int) -> tuple[Estimate, str] | None:
    """The doubling ratio to reward 0, or else to the furthest percent of the way that both have come."""
    ratio = e.results.doubling_ratios("nibbler").get(boards)
    if ratio is not None and ratio.reached:
        return ratio, f"reward {e.results.threshold:g}"
    pair = [e.results.only("nibbler", n) for n in (boards, 2 * boards)]
    for percent in range(99, 0, -1):
        smaller, larger = (part.to_share("nibbler", percent / 100) for part in pair)
        ratio = doubling_ratios(smaller | larger).get(boards)
        if ratio is not None and ratio.reached:
            return ratio, f"{percent}% of the way from random to planner"
    return None
