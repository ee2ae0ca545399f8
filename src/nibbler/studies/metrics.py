"""Scaling metrics of the paper's section 2.3, with confidence intervals over seeds.

A curve is the mean reward in consecutive bins of steps. Everything here works on `CurveSet`s (the runs of one
setting, one row per seed) and returns `Estimate`s: a value, an interval, and, where a run ended before the
threshold was reached, the bound that the run still gives. "Not reached" is therefore a value that goes
through tables, ratios and fits, and never an error:

- steps not reached in a run of 5M steps: value inf, bound 5M, printed `> 5.00M`;
- a doubling ratio whose larger size was not reached: value inf, bound (5M / smaller), printed `> 3.4`;
- a doubling ratio whose smaller size was not reached: value nan, printed `undefined`.

Time: bin k covers the steps k*bin_size + 1 ... (k+1)*bin_size, and a threshold reached in bin k counts as
k*bin_size steps, so that a curve that is above from its first bin on needs 0 steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

NOT_REACHED = math.inf
UNDEFINED = math.nan

RESAMPLES = 2000  # bootstrap replicas; a 95% interval then rests on 50 replicas in each tail
CONFIDENCE = 0.95
LARGEST_BLOCK = 4_000_000  # numbers in memory at once: 32 MB
FINAL_SHARE = 0.1  # "final reward" is the mean over the last tenth of the run
SMOOTHED_SHARE = 0.01  # steps to a share of the way: the curve is averaged over a hundredth of the run


@dataclass(frozen=True)
class Estimate:
    """A measured value with its interval over seeds, able to say that it was not reached."""

    value: float
    low: float = UNDEFINED
    high: float = UNDEFINED
    bound: float = UNDEFINED  # for a value that was not reached: it is known to be greater than this
    replicas: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False, compare=False)

    @property
    def reached(self) -> bool:
        """Whether there is a finite value."""
        return math.isfinite(self.value)

    @property
    def undefined(self) -> bool:
        """Whether nothing at all can be said (a ratio to something that was not reached)."""
        return math.isnan(self.value)

    @property
    def has_interval(self) -> bool:
        """Whether there were enough seeds for an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))


@dataclass(frozen=True)
class CurveSet:
    """The reward curves of runs that differ only by seed."""

    rewards: NDArray[np.float64]  # [seeds, bins], mean reward per step in each bin
    bin_size: int

    def __post_init__(self) -> None:
        if self.rewards.ndim != 2 or self.rewards.shape[0] < 1:
            raise ValueError(
                f"rewards must be [seeds, bins] with a seed at least, got shape {self.rewards.shape}"
            )
        if self.bin_size < 1:
            raise ValueError(f"bin_size must be a positive number of steps, got {self.bin_size}")

    @classmethod
    def from_runs(cls, curves: Sequence[NDArray[np.float64]], bin_size: int) -> CurveSet:
        """Stack runs of one setting; runs still under way cut the others to what all of them have."""
        if not curves:
            raise ValueError("a curve set needs one run at least")
        shortest = min(len(curve) for curve in curves)
        return cls(np.stack([np.asarray(curve, dtype=np.float64)[:shortest] for curve in curves]), bin_size)

    @property
    def num_seeds(self) -> int:
        return int(self.rewards.shape[0])

    @property
    def num_bins(self) -> int:
        return int(self.rewards.shape[1])

    @property
    def steps(self) -> int:
        """How many steps every run of the set has."""
        return self.num_bins * self.bin_size

    def first(self, steps: int) -> CurveSet:
        """The bins that end within the first so many steps."""
        return CurveSet(self.rewards[:, : steps // self.bin_size], self.bin_size)

    @property
    def times(self) -> NDArray[np.float64]:
        """The middle of each bin, in steps: where a plot puts the bin's mean."""
        return np.asarray((np.arange(self.num_bins) + 0.5) * self.bin_size, dtype=np.float64)

    def mean(self, window: int = 1) -> NDArray[np.float64]:
        """The seed-averaged curve, smoothed over `window` bins."""
        average: NDArray[np.float64] = np.asarray(self.rewards.mean(axis=0), dtype=np.float64)
        return smooth(average, window)


def smooth(curves: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Centred moving average along the last axis; near the ends it averages the bins that exist.

    Centred, so that smoothing does not delay a crossing; `window` is odd so that it has a centre.
    """
    if window < 1 or window % 2 == 0:
        raise ValueError(f"window must be an odd number of bins (1 does not smooth), got {window}")
    if window == 1 or curves.shape[-1] == 0:
        return curves
    half = window // 2
    bins = curves.shape[-1]
    padded = np.concatenate([np.zeros((*curves.shape[:-1], 1)), np.cumsum(curves, axis=-1)], axis=-1)
    first = np.maximum(np.arange(bins) - half, 0)
    last = np.minimum(np.arange(bins) + half + 1, bins)
    averaged: NDArray[np.float64] = (padded[..., last] - padded[..., first]) / (last - first)
    return averaged


def first_bin_that_stays(curves: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Index of the first bin from which each curve stays at or above the threshold; inf where there is none.

    A curve with no bins has not shown anything, so it has not reached the threshold.
    """
    bins = curves.shape[-1]
    if bins == 0:
        return np.full(curves.shape[:-1], NOT_REACHED)
    below = curves < threshold
    last_below = bins - 1 - np.argmax(below[..., ::-1], axis=-1)
    start = np.where(below.any(axis=-1), last_below + 1, 0)
    return np.where(start == bins, NOT_REACHED, start.astype(np.float64))


def bootstrap(
    curves: CurveSet,
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> NDArray[np.float64]:
    """A statistic of the seed average, on bootstrap samples of the seeds (as many, with replacement).

    `statistic` takes averaged curves [samples, bins] and returns an array [samples, ...]. Few seeds have few
    distinct samples (three have ten), so each is worked out once; long curves take a few at a time.
    """
    generator = np.random.default_rng([seed, curves.num_seeds])
    picks = np.sort(generator.integers(curves.num_seeds, size=(resamples, curves.num_seeds)), axis=1)
    distinct, which = np.unique(picks, axis=0, return_inverse=True)
    weights = np.zeros((len(distinct), curves.num_seeds))
    np.add.at(weights, (np.arange(len(distinct))[:, None], distinct), 1.0 / curves.num_seeds)
    at_once = max(1, LARGEST_BLOCK // max(1, curves.num_bins))
    parts = [statistic(weights[k : k + at_once] @ curves.rewards) for k in range(0, len(distinct), at_once)]
    values: NDArray[np.float64] = np.concatenate(parts)[which.ravel()]
    return values


def interval(
    replicas: NDArray[np.float64], confidence: float = CONFIDENCE, least: float = -math.inf
) -> tuple[float, float]:
    """Percentile interval of bootstrap replicas. Order statistics, so that infinite replicas stay infinite.

    A replica that is nan could be anything from `least` to inf, so it widens the interval on both sides.
    """
    if replicas.size == 0 or np.isnan(replicas).all():
        return UNDEFINED, UNDEFINED
    tail = (1.0 - confidence) / 2.0
    unknown = np.isnan(replicas)
    low = np.quantile(np.where(unknown, least, replicas), tail, method="lower")
    high = np.quantile(np.where(unknown, math.inf, replicas), 1.0 - tail, method="higher")
    return float(low), float(high)


def timesteps_to_threshold(
    curves: CurveSet, threshold: float = 0.0, window: int = 1, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """TimestepsToThreshold: the first t from which the seed-averaged reward stays at or above the threshold.

    `window` smooths the seed average (and every bootstrap average) over that many bins; 1 does not smooth.
    With one seed there is a value and no interval.
    """
    # Smoothing each seed and averaging is the same as averaging and smoothing, and is done once.
    smoothed = CurveSet(smooth(curves.rewards, window), curves.bin_size)
    value = float(first_bin_that_stays(smoothed.mean(), threshold)) * curves.bin_size
    bound = UNDEFINED if math.isfinite(value) else float(curves.steps)
    if curves.num_seeds < 2:
        return Estimate(value, bound=bound)
    replicas = curves.bin_size * bootstrap(
        smoothed, lambda means: first_bin_that_stays(means, threshold), resamples, seed
    )
    low, high = interval(replicas)
    return Estimate(value, low, high, bound, replicas)


def timesteps_to_share(
    curves: CurveSet, share: float, random_line: float, planner_line: float, planned_steps: int | None = None
) -> Estimate:
    """TimestepsToThreshold at a share of the way from the random policy (0) to the planner (1).

    Small shares are small rewards beside the noise of a bin, so the curve is averaged over a hundredth of the
    run: the same window for a run that is under way as for the whole one, if `planned_steps` are given.
    """
    bins = (planned_steps or curves.steps) / curves.bin_size
    window = 2 * int(SMOOTHED_SHARE * bins / 2) + 1
    return timesteps_to_threshold(curves, random_line + share * (planner_line - random_line), window)


def timestep_doubling_ratio(smaller: Estimate, larger: Estimate) -> Estimate:
    """TimestepDoublingRatio: steps to threshold on 2n boards over the steps on n boards."""
    if not smaller.reached or smaller.value == 0.0 or larger.undefined:
        return Estimate(UNDEFINED)
    value = larger.value / smaller.value
    bound = UNDEFINED if larger.reached else larger.bound / smaller.value
    if smaller.replicas.size == 0 or larger.replicas.size == 0:
        return Estimate(value, bound=bound)
    # Two settings have unrelated seeds, so replicas are paired at random; both came from the same generator.
    shuffled = np.random.default_rng(1).permutation(larger.replicas)
    with np.errstate(divide="ignore", invalid="ignore"):
        replicas = shuffled / smaller.replicas
    low, high = interval(replicas, least=0.0)
    return Estimate(value, low, high, bound, replicas)


def doubling_ratios(by_boards: Mapping[int, Estimate]) -> dict[int, Estimate]:
    """The doubling ratio at every n for which n and 2n boards were both run."""
    return {
        boards: timestep_doubling_ratio(by_boards[boards], by_boards[2 * boards])
        for boards in sorted(by_boards)
        if 2 * boards in by_boards
    }


@dataclass(frozen=True)
class PowerLaw:
    """steps = scale * boards ** exponent, fitted in logarithms to the sizes that reached the threshold."""

    exponent: Estimate
    scale: float
    fitted: tuple[int, ...]  # numbers of boards that the fit rests on
    not_reached: tuple[
        int, ...
    ]  # sizes without a value: they are not in the fit, and must be named beside it

    def steps(self, boards: NDArray[np.float64]) -> NDArray[np.float64]:
        """The fitted line."""
        line: NDArray[np.float64] = self.scale * np.asarray(boards, dtype=np.float64) ** self.exponent.value
        return line


def _log_slopes(log_boards: NDArray[np.float64], log_steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least-squares slopes of rows of `log_steps`; a row with an infinite entry has an infinite slope."""
    centred = log_boards - log_boards.mean()
    finite = np.isfinite(log_steps).all(axis=-1)
    slopes = np.full(log_steps.shape[:-1], math.inf)
    slopes[finite] = log_steps[finite] @ centred / (centred @ centred)
    return slopes


def power_law(by_boards: Mapping[int, Estimate]) -> PowerLaw:
    """Exponent of steps to threshold against boards, with its bootstrap interval over seeds.

    Sizes that were not reached (or needed 0 steps) cannot be fitted and are listed. A bootstrap replica in
    which a fitted size is not reached counts as an infinite exponent: the interval is then open upwards. A
    size with one seed enters every replica as it is, if it is not the only kind.
    """
    fitted = tuple(n for n in sorted(by_boards) if by_boards[n].reached and by_boards[n].value > 0)
    missing = tuple(n for n in sorted(by_boards) if not by_boards[n].reached)
    if len(fitted) < 2:
        return PowerLaw(Estimate(UNDEFINED), UNDEFINED, fitted, missing)
    log_boards = np.log(np.array(fitted, dtype=np.float64))
    log_steps = np.log(np.array([by_boards[n].value for n in fitted]))
    exponent = float(_log_slopes(log_boards, log_steps[None])[0])
    scale = math.exp(float(log_steps.mean() - exponent * log_boards.mean()))
    resamples = max(by_boards[n].replicas.size for n in fitted)
    if resamples == 0:
        return PowerLaw(Estimate(exponent), scale, fitted, missing)
    alone = {n: np.full(resamples, by_boards[n].value) for n in fitted if by_boards[n].replicas.size == 0}
    replicas = [alone.get(n, by_boards[n].replicas) for n in fitted]
    generator = np.random.default_rng(2)
    stacked = np.stack([generator.permutation(r) for r in replicas], axis=-1)
    with np.errstate(divide="ignore"):
        slopes = _log_slopes(log_boards, np.log(stacked))
    low, high = interval(slopes)
    return PowerLaw(Estimate(exponent, low, high, replicas=slopes), scale, fitted, missing)


def final_reward(
    curves: CurveSet, share: float = FINAL_SHARE, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """Mean reward over the last `share` of the run, with its interval over seeds."""
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share must be in (0, 1], got {share}")
    if curves.num_bins == 0:
        return Estimate(UNDEFINED)
    tail = max(1, round(share * curves.num_bins))
    ends = curves.rewards[:, -tail:].mean(axis=1, keepdims=True)
    value = float(ends.mean())
    if curves.num_seeds < 2:
        return Estimate(value)
    replicas = bootstrap(CurveSet(ends, 1), lambda means: means[:, 0], resamples, seed)
    low, high = interval(replicas)
    return Estimate(value, low, high, replicas=replicas)


def share_of_planner(reward: Estimate, random_line: float, planner_line: float) -> Estimate:
    """Where a reward lies between the random policy (0) and the planner (1)."""
    span = planner_line - random_line
    if not span > 0.0:
        raise ValueError(f"the planner ({planner_line}) must be above the random policy ({random_line})")
    value, low, high = ((x - random_line) / span for x in (reward.value, reward.low, reward.high))
    return Estimate(value, low, high)


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """The estimate in another unit: steps to threshold times weights (or seconds) per step."""
    return Estimate(
        estimate.value * factor,
        estimate.low * factor,
        estimate.high * factor,
        estimate.bound * factor,
        estimate.replicas * factor,
    )


def format_quantity(number: float) -> str:
    """Three significant digits with k, M, G: 1450000 -> 1.45M."""
    if not math.isfinite(number):
        return "∞" if number > 0 else ("-∞" if number < 0 else "?")
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size * 0.9995:
            return f"{_significant(number / size)}{suffix}"
    return _significant(number)


def _significant(number: float) -> str:
    if number == 0 or abs(number) >= 99.95:
        return f"{number:.0f}"
    return f"{number:.1f}" if abs(number) >= 9.995 else f"{number:.2f}"


def format_estimate(estimate: Estimate, digits: int | None = None, with_interval: bool = True) -> str:
    """An estimate for a table: `1.45M (1.40M to 1.52M)`, `> 5.00M`, or `undefined`.

    `digits` gives fixed decimals (rewards); without it numbers are shortened with k, M, G (steps, weights).
    """

    def show(number: float) -> str:
        if digits is None or not math.isfinite(number):
            return format_quantity(number)
        return f"{number:.{digits}f}"

    if estimate.undefined:
        return "undefined"
    if not estimate.reached:
        return "not reached" if math.isnan(estimate.bound) else f"> {show(estimate.bound)}"
    if not with_interval or not estimate.has_interval:
        return show(estimate.value)
    return f"{show(estimate.value)} ({show(estimate.low)} to {show(estimate.high)})"
