"""Draws the components of an environment side by side, as text or as an image.

A component with features named "cell row,col" is drawn as a grid, with its other bits as a strip below it;
for a catch board the labels of its states also tell the ball from the paddle. Any other component is drawn
as a block of its bits, or as the names of those that are on. Drawing looks at the states, never at the
permuted bits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from nibbler.envs.catch import BoardState
from nibbler.mdp.environment import Environment
from nibbler.mdp.finite_mdp import FiniteMDP

Image = NDArray[np.uint8]

CELL = 9  # pixels of a cell, with the line that ends it
BOX = 8  # pixels of a status bit, with the line that ends it
BOXES_PER_LINE = 6
GAP = 6  # pixels between components
LEAST_HEIGHT = 360  # smaller frames are enlarged by a whole factor

BACKGROUND = (18, 20, 26)
EMPTY, EMPTY_HOT = (44, 48, 60), (98, 44, 32)
DIM = (74, 80, 96)
BIT_ON = (240, 240, 235)
BALL, PADDLE = (250, 214, 90), (96, 170, 250)
STATUS_COLOURS = {
    "hot": (255, 130, 60),
    "reset": (170, 170, 190),
    "catch": (90, 210, 120),
    "miss": (230, 80, 80),
    "plus": (90, 230, 120),
    "minus": (250, 80, 80),
}
SYMBOLS = {"hot": "H", "reset": "R", "catch": "C", "miss": "M", "plus": "+", "minus": "-"}
# Letters of five rows of pixels.
GLYPHS = {
    "H": "101 101 111 101 101",
    "R": "110 101 110 101 101",
    "C": "111 100 100 100 111",
    "M": "10001 11011 10101 10001 10001",
    "+": "000 010 111 010 000",
    "-": "000 000 111 000 000",
}
HOT_TEXT, PLAIN_TEXT = "\x1b[31m", "\x1b[0m"
TEXT_WIDTH = 100


class _Picture:
    """How one component is laid out: which feature is which cell, and which bits go in the strip."""

    def __init__(self, mdp: FiniteMDP) -> None:
        self.mdp = mdp
        self.cells: dict[int, tuple[int, int]] = {}
        for feature, name in enumerate(mdp.feature_names):
            match = re.fullmatch(r"cell (\d+),(\d+)", name)
            if match:
                self.cells[feature] = (int(match[1]), int(match[2]))
        self.rows = 1 + max((row for row, _ in self.cells.values()), default=-1)
        self.cols = 1 + max((col for _, col in self.cells.values()), default=-1)
        self.strip = [feature for feature in range(mdp.num_features) if feature not in self.cells]
        if not self.cells:  # a block of bits, about as wide as high
            self.cols = math.ceil(math.sqrt(mdp.num_features))
            self.rows = math.ceil(mdp.num_features / self.cols)
            self.cells = {f: divmod(f, self.cols) for f in range(mdp.num_features)}
            self.strip = []
        self.is_grid = any(name.startswith("cell ") for name in mdp.feature_names)

    def active(self, state: int) -> set[int]:
        return set(self.mdp.features(state))

    def is_hot(self, active: set[int]) -> bool:
        return any(self.mdp.feature_names[feature] == "hot" for feature in active)

    def ball_and_paddle(self, state: int) -> tuple[tuple[int, int] | None, tuple[int, int]] | None:
        """Cells of the ball (None off the grid) and of the paddle, where the state says so."""
        label = self.mdp.labels[state] if self.mdp.labels is not None else None
        if isinstance(label, tuple) and label and isinstance(label[0], BoardState):
            label = label[0]  # a gated board: (state of the board, hot)
        if not isinstance(label, BoardState):
            return None
        ball = (label.ball.row, label.ball.col) if label.ball.place == "grid" else None
        return ball, (self.rows - 1, label.paddle)

    @property
    def strip_lines(self) -> int:
        return math.ceil(len(self.strip) / BOXES_PER_LINE)

    @property
    def pixels(self) -> tuple[int, int]:
        """Height of the grid and of the strip together, and the width."""
        strip_width = min(len(self.strip), BOXES_PER_LINE) * BOX
        return self.rows * CELL + self.strip_lines * (BOX + 1), max(self.cols * CELL, strip_width)


class Renderer:
    """Draws an environment's states; keeps the layout of its distinct components."""

    def __init__(self, env: Environment) -> None:
        distinct: dict[int, _Picture] = {}
        self._pictures = [distinct.setdefault(id(mdp), _Picture(mdp)) for mdp in env.components]

    def rgb_array(self, states: Sequence[int] | NDArray[np.int32]) -> Image:
        """The components in a grid, as an image [height, width, 3]; hot ones have a warm background."""
        tiles = [_draw(picture, int(s)) for picture, s in zip(self._pictures, states, strict=True)]
        height, width = (max(tile.shape[axis] for tile in tiles) for axis in (0, 1))
        # Frames a third wider than high, whatever the shape of a board.
        columns = min(len(tiles), math.ceil(math.sqrt(len(tiles) * 4 / 3 * (height + GAP) / (width + GAP))))
        lines = math.ceil(len(tiles) / columns)
        columns = math.ceil(len(tiles) / lines)  # fills the last line as far as it goes
        frame = _block(lines * (height + GAP) + GAP, columns * (width + GAP) + GAP, BACKGROUND)
        for i, tile in enumerate(tiles):
            line, column = divmod(i, columns)
            bottom = (line + 1) * (height + GAP)  # boards of different heights stand on one line
            left = GAP + column * (width + GAP)
            frame[bottom - tile.shape[0] : bottom, left : left + tile.shape[1]] = tile
        scale = math.ceil(LEAST_HEIGHT / frame.shape[0])
        return frame.repeat(scale, axis=0).repeat(scale, axis=1)

    def ansi(self, states: Sequence[int] | NDArray[np.int32]) -> str:
        """The components side by side as text: o ball, = paddle, @ both, letters for the bits that are on."""
        blocks = [_write(picture, int(s)) for picture, s in zip(self._pictures, states, strict=True)]
        lines: list[str] = []
        while blocks:
            count, used = 0, 0
            while count < len(blocks) and (count == 0 or used + len(blocks[count][1][0]) <= TEXT_WIDTH):
                used += len(blocks[count][1][0]) + 2
                count += 1
            lines += [*_beside(blocks[:count]), ""]
            blocks = blocks[count:]
        return "\n".join(lines)


def _draw(picture: _Picture, state: int) -> Image:
    active = picture.active(state)
    tile = _block(*picture.pixels, BACKGROUND)
    empty = EMPTY_HOT if picture.is_hot(active) else EMPTY
    known = picture.ball_and_paddle(state)
    for feature, (row, col) in picture.cells.items():
        cell = tile[row * CELL : (row + 1) * CELL - 1, col * CELL : (col + 1) * CELL - 1]
        cell[:] = empty
        if known is None and feature in active:
            cell[1:-1, 1:-1] = BIT_ON
    if known is not None:
        ball, (row, col) = known
        tile[row * CELL + 4 : (row + 1) * CELL - 1, col * CELL : (col + 1) * CELL - 1] = PADDLE
        if ball is not None:
            side = np.arange(CELL - 1) - (CELL - 2) / 2
            disc = side[:, None] ** 2 + side**2 <= 9.5
            row, col = ball
            tile[row * CELL : (row + 1) * CELL - 1, col * CELL : (col + 1) * CELL - 1][disc] = BALL
    for position, feature in enumerate(picture.strip):
        line, column = divmod(position, BOXES_PER_LINE)
        top = picture.rows * CELL + 1 + line * (BOX + 1)
        _draw_bit(
            tile[top : top + BOX - 1, column * BOX : (column + 1) * BOX - 1],
            picture.mdp.feature_names[feature],
            feature in active,
        )
    return tile


def _draw_bit(box: Image, name: str, on: bool) -> None:
    """A box that lights up in the bit's colour, with the bit's letter in it where it has one."""
    box[:] = STATUS_COLOURS.get(name, BIT_ON) if on else EMPTY
    symbol = SYMBOLS.get(name)
    if symbol is not None:
        letter = np.array([[pixel == "1" for pixel in row] for row in GLYPHS[symbol].split()])
        left = (BOX - 1 - letter.shape[1]) // 2
        box[1:6, left : left + letter.shape[1]][letter] = BACKGROUND if on else DIM


def _write(picture: _Picture, state: int) -> tuple[bool, list[str]]:
    """Whether the component is hot, and its lines of text, all of one length."""
    active = picture.active(state)
    names = picture.mdp.feature_names
    if not picture.is_grid:
        lines = [names[feature] for feature in sorted(active)] or ["(none)"]
        width = max(len(name) for name in names)
        lines += [""] * (picture.mdp.max_active - len(lines))  # so that a frame keeps its height
        return picture.is_hot(active), [line.ljust(width) for line in lines]
    marks = {cell: "#" if feature in active else "." for feature, cell in picture.cells.items()}
    known = picture.ball_and_paddle(state)
    if known is not None:
        ball, paddle = known
        marks[paddle] = "="
        if ball is not None:
            marks[ball] = "@" if ball == paddle else "o"
    lines = [
        "".join(marks.get((row, col), " ") for col in range(picture.cols)) for row in range(picture.rows)
    ]
    letters = [SYMBOLS.get(names[f], names[f][:1].upper()) if f in active else "." for f in picture.strip]
    lines += ["".join(letters[i : i + BOXES_PER_LINE]) for i in range(0, len(letters), BOXES_PER_LINE)]
    width = max(len(line) for line in lines)
    return picture.is_hot(active), [line.ljust(width) for line in lines]


def _beside(blocks: Iterable[tuple[bool, list[str]]]) -> list[str]:
    """Blocks of text next to each other, standing on one line."""
    blocks = list(blocks)
    height = max(len(lines) for _, lines in blocks)
    columns = []
    for hot, lines in blocks:
        padded = [" " * len(lines[0])] * (height - len(lines)) + lines
        columns.append([HOT_TEXT + line + PLAIN_TEXT if hot else line for line in padded])
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _block(height: int, width: int, colour: tuple[int, int, int]) -> Image:
    return np.full((height, width, 3), colour, dtype=np.uint8)
