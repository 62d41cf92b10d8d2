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
    "|": "$|$",
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
LETTER = re.compile(r"θ_(?P<index>\w)|.", re.DOTALL)
BOLD = re.compile(r"\*\*(.+?)\*\*")


def to_latex(text: object) -> str:
    """Write a text as LaTeX: escaped, `**…**` in bold, θ_a as mathematics."""
    escaped = LETTER.sub(_escaped, str(text))
    return BOLD.sub(r"\\textbf{\1}", escaped)


def _escaped(letter: re.Match[str]) -> str:
    """Write one letter as LaTeX, or θ together with its index."""
    if letter["index"]:
        return rf"$\theta_{letter['index']}$"
    return ESCAPED.get(letter[0], letter[0])


def latex_table(table: pd.DataFrame, caption: str, label: str) -> str:
    """Write a table of text as LaTeX for the package booktabs. The index becomes the first columns.

    label: the table's label in LaTeX, without `tab:`.
    """
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
