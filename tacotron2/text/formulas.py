r"""Formulas of LaTeX in a text, as words and signs that the reader of English reads.

read_formulas(r"It is $\frac{1}{2}$, since \(a^2 \leq -b\).")
"It is 1/2, since a² ≤ minus b."
"""

from __future__ import annotations

import re

from common.reading.tables import readings

# Between dollars a formula has a sign of its own, or letters but no word; prices have none: from $5 to $10.
_FORMULA = re.compile(
    r"\$\$(?P<display>[^$]{1,1000})\$\$"
    r"|\\\[(?P<block>(?:[^\\]|\\(?![][])){1,1000})\\\]|\\\((?P<inline>(?:[^\\]|\\(?![()])){1,1000})\\\)"  # none in another
    r"|\\begin\{(?:equation|align|gather)\*?\}(?P<environment>(?:[^\\]|\\(?!end)){1,1000})\\end\{\w+\*?\}"
    r"|(?P<bare>\\(?:[dt]?frac\s?\{[^{}]{1,99}\}\s?\{[^{}]{1,99}\}|sqrt\s?\{[^{}]{1,99}\}))"  # without a mark
    r"|(?<![\w\\$])\$(?=\S)(?P<dollars>[^$\n]{1,500})(?<=\S)\$(?![\w$])",
    re.DOTALL,
)
_IS_FORMULA = re.compile(r"[\\^_={}+<>|]|\A[^A-Za-z]*(?:[A-Za-z](?![A-Za-z])[^A-Za-z]*)+\Z")
_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mathbb|mathcal|mathit|operatorname|mbox)\s?\{([^{}]*)\}")
_INNERMOST = re.compile(
    r"\\[dt]?frac\s?\{(?P<top>[^{}]*)\}\s?\{(?P<bottom>[^{}]*)\}|\\sqrt\s?\{(?P<root>[^{}]*)\}"
    r"|\\(?P<from>sum|prod|int|lim)(?:_(?:\{(?P<low>[^{}]*)\}|(?P<low1>\w)))?(?:\^(?:\{(?P<high>[^{}]*)\}|(?P<high1>\w|\\infty)))?"
    r"|\^\{(?P<power>[^{}]*)\}|_\{(?P<index>[^{}]*)\}"
)
_DEEPEST = 8
_OVER = {"sum": "sum", "prod": "product", "int": "integral", "lim": "limit"}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_COMMANDS = readings("command of LaTeX") | {
    name: letter for letter, name in readings("greek").items() if letter.islower()
}
_SIGNS = {"-": " minus ", "*": " times ", "<": " less than ", ">": " greater than ", "/": " over ", "&": " ", "~": " "}


def read_formulas(text: str) -> str:
    """Replace the formulas of a text: between $, $$, \\( and \\), or \\[ and \\]."""

    def replace(found: re.Match[str]) -> str:
        formula = next(group for group in found.groups() if group is not None)
        return _read(formula) if _IS_FORMULA.search(formula) else found[0]  # an escaped bracket is none

    return _FORMULA.sub(replace, text) if "$" in text or "\\" in text else text


def _read(formula: str) -> str:
    formula = re.sub(r"\\(?:begin|end)\{\w+\*?\}|\\[,;:!]|\\ ", " ", formula.replace("\\\\", ", "))
    formula = re.sub(r"\\([{}])", " ", formula).replace("\\%", "%")
    formula = _TEXT.sub(lambda found: re.sub(r"([A-Za-z]+)", r"\\\1 ", found[1]), formula)  # as names of functions
    for _ in range(_DEEPEST):
        before = formula
        formula = _INNERMOST.sub(_innermost, formula)
        if formula == before:
            break
    formula = re.sub(r"(?<=[0-9])(?=[a-z])", " ", formula)  # 2x
    formula = re.sub(r"(?<![\\!A-Za-z])[a-z]{2,4}(?![A-Za-z])", lambda found: " ".join(found[0]), formula)  # 4ac
    formula = re.sub(r"\^(-?[0-9])", lambda found: found[1].translate(_RAISED), formula)
    formula = re.sub(r"\^\s?\\circ", "°", formula)
    formula = re.sub(r"(?<![0-9])/|/(?![0-9])|[-*<>&~]", lambda found: _SIGNS[found[0]], formula)
    formula = re.sub(r"_\s?(?=\w)", r" \\sub ", formula)
    formula = re.sub(r"\\!?([A-Za-z]+)", lambda found: f" {_COMMANDS.get(found[1], found[1])} ", formula)
    formula = re.sub(r"\s+(?=[⁰-⁹²³¹⁻°,.)])", "", re.sub(r"[{}_$\\]", " ", formula))
    return " ".join(formula.split())


def _innermost(found: re.Match[str]) -> str:
    """Read a command whose arguments have no braces of their own."""
    part = found.groupdict()
    if part["top"] is not None:
        top, bottom = part["top"].strip(), part["bottom"].strip()
        return f" {top}/{bottom} " if (top + bottom).isdigit() else f" {top} \\over {bottom} "
    if part["root"] is not None:
        return f"√{part['root'].strip()}"
    if part["from"] is not None:
        low, high = part["low"] or part["low1"], part["high"] or part["high1"]
        first = (" \\!as " if part["from"] == "lim" else " \\!from ") + low if low else ""
        until = f" \\to {high}" if high else ""
        return f" \\!{_OVER[part['from']]}{first}{until} \\!of "
    if part["power"] is not None:
        power = part["power"].replace(" ", "")
        return power.translate(_RAISED) if re.fullmatch("-?[0-9]+", power) else f"^{part['power'].strip()}"
    return f" \\sub {part['index']}"
