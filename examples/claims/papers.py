"""The papers of a claim as PDFs: the form, the builder's estimate and the policy, drawn with ReportLab."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

from examples.claims.cases import Claim

CLAUSES: dict[str, tuple[str, str]] = {
    "1.1": (
        "Fire and lightning",
        "We pay for damage to the home by fire, smoke, explosion or lightning, and for the fire brigade's charges.",
    ),
    "1.2": (
        "Theft",
        (
            "We pay for belongings that are stolen from the home where force was used to get in or out, and for the "
            "damage to doors, windows and locks that the thief has done."
        ),
    ),
    "2.1": (
        "Flood",
        (
            "We pay for damage to the home and its contents by flood water that enters from outside: from a river that "
            "overflows its banks, from the sea and the tide, or from heavy rain that the ground cannot take."
        ),
    ),
    "2.2": (
        "Escape of water",
        (
            "We pay for damage by water that escapes from a pipe, tank or appliance inside the home that has burst, "
            "leaked or frozen, and for finding the leak."
        ),
    ),
    "2.3": (
        "Storm",
        (
            "We pay for damage to roofs and walls by wind above 88 km/h, by hail or by the weight of snow. Fences, "
            "gates and hedges are left out."
        ),
    ),
    "3.1": (
        "Excess",
        "You bear the first 350 pounds of each claim yourself. For subsidence it is 1,000 pounds.",
    ),
    "3.2": (
        "What is left out",
        (
            "We do not pay for wear, rot, rust or mould that came slowly, for damage by pets or vermin, or for work "
            "that was done badly."
        ),
    ),
    "4.1": (
        "How to claim",
        (
            "Tell us within thirty days, send photos and an estimate of the repair, and do not begin permanent repairs "
            "before we have agreed to them."
        ),
    ),
}

_STYLES = getSampleStyleSheet()
_RULED = TableStyle(
    [
        ("GRID", (0, 0), (-1, -1), 0.6, colors.black),
        ("BACKGROUND", (0, 0), (-1, 0), colors.whitesmoke),
        ("FONTSIZE", (0, 0), (-1, -1), 10),
        ("TOPPADDING", (0, 0), (-1, -1), 5),
        ("BOTTOMPADDING", (0, 0), (-1, -1), 5),
    ]
)


def form(claim: Claim) -> bytes:
    """The claim form: a table of what was filled in, and what happened in the holder's words."""
    rows = [
        ("Field", "Answer"),
        ("Claim number", claim.number),
        ("Policy number", claim.policy),
        ("Policyholder", claim.holder),
        ("Address", claim.address),
        ("Date of loss", claim.lost_on),
        ("Cause", claim.cause),
    ]
    return _pdf(
        "Home insurance claim form",
        [_table(rows, (130, 300)), Spacer(1, 14), _heading("What happened"), _text(claim.account)],
    )


def estimate(claim: Claim) -> bytes:
    """The builder's estimate: a line for each piece of work, and the total."""
    rows = [("Work", "GBP"), *((what, str(price)) for what, price in claim.work), ("Total", str(claim.total))]
    return _pdf(
        "Repair estimate",
        [_text(f"{claim.builder}. For {claim.holder}, {claim.address}."), Spacer(1, 10), _table(rows, (330, 100))],
    )


def policy(claim: Claim) -> bytes:
    """The policy, clause by clause."""
    parts: list[Any] = [_text(f"Policy {claim.policy} of {claim.holder}."), Spacer(1, 8)]
    for number, (title, text) in CLAUSES.items():
        parts += [_heading(f"{number} {title}"), _text(text), Spacer(1, 10)]
    return _pdf("Home insurance policy", parts)


def _pdf(title: str, parts: Sequence[Any]) -> bytes:
    made = BytesIO()
    # `invariant`: no date and no random id, so that equal claims are equal bytes.
    paper = SimpleDocTemplate(made, pagesize=A4, title=title, author="examples/claims", invariant=1)
    paper.build([Paragraph(title, _STYLES["Title"]), Spacer(1, 10), *parts])
    return made.getvalue()


def _heading(text: str) -> Any:
    return Paragraph(text, _STYLES["Heading2"])


def _text(text: str) -> Any:
    return Paragraph(text.replace("&", "&amp;"), _STYLES["BodyText"])


def _table(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Any:
    return Table([list(row) for row in rows], colWidths=list(widths), style=_RULED)
