"""How a problem is laid over the GPU: warps per question, questions per block, blocks per run.

A plan depends on the problem's shape alone, never on how many runs share the device: sums are taken in the
order of the plan, so a packed run equals the same run alone, bit for bit.
"""

from dataclasses import asdict, dataclass, replace

from nibbler.agents.config import NibblerConfig, ValueNetworkConfig

MOST_QUESTIONS_PER_BLOCK = 12  # a block has 16 barriers, and each question has one
MOST_WARPS = 32  # of a block
UNITS = 4  # hidden units of a flat network that a thread keeps: what it loads at once


def check_warps(warps: int) -> None:
    """Refuse a block that no GPU has."""
    if warps > MOST_WARPS:
        raise ValueError(f"a block has at most {MOST_WARPS} warps, not {warps}")


@dataclass(frozen=True)
class NibblerPlan:
    """One group of warps per question, some questions per block."""

    questions_per_block: int
    question_warps: int
    main_warps: int
    discovery_warps: int
    max_pool_rows: int = 32  # active rows of a question that are kept on chip, if there is room
    batch: int = 4  # rows of weights in flight at once
    blocks_per_sm: int = 1  # what the compiler must leave registers for
    support_shared: int = 1  # support weights on chip
    discovery_shared: int = 1  # discovery weights on chip
    q_momentum_shared: int = 1  # momentum of the questions' q heads on chip
    discovery_apart: int = 0  # in a block of their own

    def __post_init__(self) -> None:
        if not 1 <= self.questions_per_block <= MOST_QUESTIONS_PER_BLOCK:
            raise ValueError(f"a block has 1 to {MOST_QUESTIONS_PER_BLOCK} questions")
        check_warps(self.questions_per_block * self.question_warps + self.main_warps + self.discovery_warps)

    def macros(
        self, config: NibblerConfig, num_features: int, num_actions: int, num_boards: int, slots: int
    ) -> dict[str, int]:
        """The macros that the kernel is compiled with."""
        hidden = padded(config.hidden_units, 32 * self.question_warps)
        return {
            **{key.upper(): value for key, value in asdict(self).items()},
            **shape_macros(num_features, num_actions, num_boards, slots),
            "QUESTIONS": config.num_questions,
            "INPUTS": config.inputs_per_question,
            "HIDDEN": hidden,
            "HIDDEN_USED": config.hidden_units,
            "HIDDEN_BIAS": int(config.hidden_bias),
            "UNITS": hidden // (32 * self.question_warps),
            "UNIT_BLOCKS": 1,
            "BLOCKS": -(-config.num_questions // self.questions_per_block) + self.discovery_apart,
            "LINEAR_MOMENTUM": int(config.linear_momentum > 0),
            "SWAPPED_RANDOM": int(config.swapped_input == "random"),
            "CHANGED_RANDOM": int(config.changed_question == "random"),
        }

    def smaller(self) -> "NibblerPlan | None":
        """The same plan with less on chip, for larger problems; None if there is nothing to give up."""
        for part in ("discovery_shared", "support_shared", "q_momentum_shared"):
            if getattr(self, part):
                return replace(self, **{part: 0})
        return None

    def denser(self) -> "NibblerPlan | None":
        """About half as many blocks, for a GPU with few multiprocessors; None if they cannot be fuller."""
        per_block = min(2 * self.questions_per_block, MOST_QUESTIONS_PER_BLOCK)
        warps = (MOST_WARPS - self.main_warps - self.discovery_warps) // per_block
        if per_block == self.questions_per_block or warps < 1:
            return None
        warps = min(self.question_warps, 1 << (warps.bit_length() - 1))
        return replace(self, questions_per_block=per_block, question_warps=warps)


@dataclass(frozen=True)
class NetworkPlan:
    """A thread per four hidden units in each of some groups, who share the active rows; blocks of units."""

    block_units: int  # hidden units of a block
    row_groups: int
    main_warps: int
    max_pool_rows: int = 200
    batch: int = 4
    blocks_per_sm: int = 1

    def __post_init__(self) -> None:
        if self.row_groups < 2:
            raise ValueError("a network has two groups of rows or more")
        if self.block_units % UNITS or self._workers % 32:
            raise ValueError(
                f"{self.row_groups} groups of threads for {self.block_units} hidden units, {UNITS} each, "
                "are no whole warps"
            )
        check_warps(self._workers // 32 + self.main_warps)

    @property
    def _workers(self) -> int:
        return self.row_groups * self.block_units // UNITS

    def macros(
        self, config: ValueNetworkConfig, num_features: int, num_actions: int, num_boards: int, slots: int
    ) -> dict[str, int]:
        """The macros that the kernel is compiled with."""
        blocks = -(-config.hidden_units // self.block_units)
        plan = {key.upper(): value for key, value in asdict(self).items() if key != "block_units"}
        return {
            **plan,
            **shape_macros(num_features, num_actions, num_boards, slots),
            "BLOCKS": blocks,
            "HIDDEN": blocks * self.block_units,
            "HIDDEN_BIAS": int(config.hidden_bias),
            "UNITS": UNITS,
            "UNIT_BLOCKS": blocks,
            "STATE_VALUE": int(config.learns_state_value),
        }

    def smaller(self) -> "NetworkPlan | None":
        """Fewer blocks on a multiprocessor, so that each has more room; None if there is but one."""
        return replace(self, blocks_per_sm=1) if self.blocks_per_sm > 1 else None

    def denser(self) -> "NetworkPlan | None":
        """Half as many blocks, for a GPU with few multiprocessors; None if they cannot be fuller."""
        try:
            return replace(self, block_units=2 * self.block_units, row_groups=max(2, self.row_groups // 2))
        except ValueError:
            return None


Plan = NibblerPlan | NetworkPlan


def shape_macros(num_features: int, num_actions: int, num_boards: int, slots: int) -> dict[str, int]:
    """The macros of environment.cuh."""
    return {
        "FEATURES": num_features,
        "ACTIONS": num_actions,
        "BOARDS": num_boards,
        "BOARD_SLOTS": slots,
    }


def padded(units: int, threads: int) -> int:
    """Hidden units rounded up to 1, 2, 4 or a multiple of 4 units per thread (whole vector loads)."""
    per_thread = -(-units // threads)
    if per_thread > 2:
        per_thread = -(-per_thread // 4) * 4
    return per_thread * threads


def plan_nibbler(config: NibblerConfig, num_boards: int) -> NibblerPlan:
    """A plan by the number of questions; the numbers were found by `nibbler bench cuda` on an H200."""
    questions = config.num_questions
    if questions <= 4:
        return NibblerPlan(questions, 2, 1, 1)
    if questions <= 16:
        return NibblerPlan(4, 2, 1, 1)
    if questions <= 128 and config.hidden_units > 256:
        return NibblerPlan(2, 4, 4, 1)
    if questions <= 128:  # more runs side by side
        return NibblerPlan(4, 2, 3, 1, discovery_apart=int(questions > 64))
    if questions <= 256:
        return NibblerPlan(2, 4, 7, 1, discovery_apart=1)
    # More features than fit on chip beside so many questions: their linear weights stay in global memory.
    per_block = min(-(-questions // 128), MOST_QUESTIONS_PER_BLOCK)
    main_warps, discovery_warps = (8, 4) if 4 < per_block <= 8 else (5, 2)  # of MOST_WARPS in all
    return NibblerPlan(
        per_block,
        2,
        main_warps,
        discovery_warps,
        batch=2,
        support_shared=0,
        q_momentum_shared=int(per_block <= 4),
        discovery_apart=1,
    )


def plan_network(config: ValueNetworkConfig, num_boards: int) -> NetworkPlan:
    """A plan by the number of hidden units and, since each board has active rows, of boards."""
    many = config.hidden_units > 256
    if num_boards <= 16:  # the active rows of two runs fit on chip; on few boards also those of large blocks
        units = _share(config.hidden_units, 512 if many and num_boards <= 8 else 256, 64)
        return NetworkPlan(units, max(2, 512 // units), 1, blocks_per_sm=2)
    if num_boards <= 64:
        return NetworkPlan(_share(config.hidden_units, 192 if many else 256, 16), 8, 4, batch=3)
    return NetworkPlan(_share(config.hidden_units, 64, 16), 24, 4, max_pool_rows=300)


def _share(units: int, most: int, multiple: int) -> int:
    """Hidden units of a block that has at most `most`, in blocks that are equally full."""
    blocks = -(-units // most)
    return -(-units // (multiple * blocks)) * multiple
