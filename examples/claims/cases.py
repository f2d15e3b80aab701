"""The claims of the example: invented people, houses and sums, and which clause of the policy answers each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """What is written into the papers of one claim. `clause` is the clause of the policy that it is about.

    `water` is how high the water stands in the photo, as a share of the wall.
    """

    number: str
    policy: str
    holder: str
    address: str
    lost_on: str
    cause: str
    account: str
    builder: str
    work: tuple[tuple[str, int], ...]
    clause: str
    water: float

    @property
    def total(self) -> int:
        """The sum of the estimate, in whole pounds."""
        return sum(price for _, price in self.work)

    @property
    def fields(self) -> dict[str, str]:
        """What is to be found in the papers, as it is written there."""
        return {
            "claim_number": self.number,
            "policyholder": self.holder,
            "address": self.address,
            "date_of_loss": self.lost_on,
            "cause": self.cause,
            "total": str(self.total),
        }


CLAIMS = (
    Claim(
        number="CL-2041",
        policy="HP-77310",
        holder="Marian Oakes",
        address="4 Weir Lane, Tewford",
        lost_on="14 February 2026",
        cause="River flood",
        account=(
            "After two days of heavy rain the river came over its bank and flooded the ground floor. Flood water "
            "stood thirty centimetres high in the living room and ruined the floor, the plaster and the sofa."
        ),
        builder="Harrow & Sons, Builders",
        work=(("Pump out and dry the ground floor", 1450), ("Replace oak floor, 24 sq m", 2880), ("New plaster", 960)),
        clause="2.1",
        water=0.22,
    ),
    Claim(
        number="CL-2042",
        policy="HP-51904",
        holder="Tomas Reiland",
        address="19 Mill Street, Tewford",
        lost_on="15 February 2026",
        cause="River flood",
        account=(
            "Flood water rose out of the overflowing river and came into the house through the front door. The "
            "kitchen units swelled and the electrics of the ground floor failed."
        ),
        builder="Tewford Restoration Ltd",
        work=(("Kitchen units and worktop", 4200), ("Rewire the ground floor", 1900), ("Dehumidifiers, 3 weeks", 630)),
        clause="2.1",
        water=0.12,
    ),
    Claim(
        number="CL-2043",
        policy="HP-80226",
        holder="Ines Calloway",
        address="2 Chapel Rise, Norbury",
        lost_on="3 March 2026",
        cause="Burst pipe",
        account=(
            "A frozen water pipe burst in the loft. Water escaped from the pipe for hours, ran through the ceiling of "
            "the bedroom and brought the plaster down."
        ),
        builder="Norbury Plumbing & Plaster",
        work=(("Repair the pipe in the loft", 310), ("New bedroom ceiling", 1240), ("Redecorate", 580)),
        clause="2.2",
        water=0.04,
    ),
    Claim(
        number="CL-2044",
        policy="HP-62418",
        holder="Desmond Achebe",
        address="31 Quay Road, Tewford",
        lost_on="14 February 2026",
        cause="Tidal flood",
        account=(
            "The tide flooded the quay and sea water entered the ground floor of the house. The flood stood above the "
            "sockets, and carpets and doors have to be replaced."
        ),
        builder="Quayside Building Co",
        work=(("Strip out wet carpets and doors", 720), ("New doors, 4", 1560), ("Carpets, 38 sq m", 2090)),
        clause="2.1",
        water=0.3,
    ),
)
