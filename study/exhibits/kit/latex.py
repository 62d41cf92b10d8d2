"""Tables as LaTeX, in the form of the package booktabs."""

import re

import pandas as pd

ESCAPED = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "−": "$-$",
    "±": r"$\pm$",
    "–": "--",
    "†": r"$^\dagger$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "δ": r"$\delta$",
    "θ": r"$\theta$",
    "λ": r"$\lambda$",
    "φ": r"$\phi$",
    "ψ": r"$\psi$",
    "∇": r"$\nabla$",
    "‖": r"$\|$",
    "′": "$'$",
}
THETA = re.compile(r"θ_(\w)")
BOLD = re.compile(r"\*\*(.+?)\*\*")


def to_latex(text: object) -> str:
    """A text as LaTeX: escaped, `**…**` in bold, θ_a as mathematics."""
    if BOLD.search(str(text)):
        pieces = BOLD.split(str(text))  # The odd ones are those in bold.
        return "".join(
            rf"\textbf{{{to_latex(piece)}}}" if place % 2 else to_latex(piece)
            for place, piece in enumerate(pieces)
        )
    pieces = THETA.split(str(text))  # The odd ones are the indices of θ.
    return "".join(
        rf"$\theta_{piece}$" if place % 2 else _escaped(piece) for place, piece in enumerate(pieces)
    )


def _escaped(text: str) -> str:
    return "".join(ESCAPED.get(letter, letter) for letter in text)


def latex_table(table: pd.DataFrame, caption: str, label: str) -> str:
    """A table of text, its index as columns, for `\\usepackage{booktabs}`."""
    flat = table.reset_index()
    left = table.index.nlevels
    columns = "l" * left + "r" * (flat.shape[1] - left)
    head = " & ".join(to_latex(name) for name in flat.columns) + r" \\"
    rows = [" & ".join(map(to_latex, row)) + r" \\" for row in flat.to_numpy().tolist()]
    lines = [
        r"\begin{table}",
        rf"\caption{{{to_latex(caption)}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        head,
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"
