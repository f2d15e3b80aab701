"""What the demo searches: short passages by id, and questions with the id of the passage that answers each."""

from __future__ import annotations

PASSAGES: dict[str, str] = {
    "housing-deposit": (
        "A landlord must return the deposit within four weeks of the end of the tenancy, less the cost of any damage "
        "beyond ordinary wear."
    ),
    "housing-notice": "A tenant who wants to leave gives two months' written notice, counted from the first of a month.",
    "housing-heating": (
        "If the radiators stay cold in winter, the landlord has three days to have them repaired; after that the rent "
        "may be reduced."
    ),
    "housing-pets": "Small animals such as hamsters need no permission, but a dog may be kept only if the owner agrees.",
    "housing-sublet": "A room may be let to a third person for up to a year once the landlord has been told who moves in.",
    "weather-fog": (
        "Fog forms on clear, calm nights when the ground cools the air above it below the point at which water condenses."
    ),
    "weather-hail": (
        "Hailstones grow as strong updraughts carry drops again and again into the freezing top of a thundercloud."
    ),
    "weather-foehn": "Air that sinks behind a mountain range warms and dries, and a spring day can arrive in January.",
    "weather-snow": "Large flakes fall near freezing point, because wet crystals stick together; deep cold gives fine powder.",
    "weather-rainbow": "A rainbow stands opposite the sun, where drops bend light and send each colour back at its own angle.",
    "cooking-rice": "Rinse the rice until the water runs clear, then let it steam, covered, for ten minutes off the heat.",
    "cooking-bread": "Dough that has risen overnight in the fridge bakes into a loaf with large holes and a sour note.",
    "cooking-onions": "Onions turn sweet and brown if they cook slowly in butter for three quarters of an hour.",
    "cooking-eggs": "For a soft yolk, lower the egg into boiling water for six minutes and cool it at once.",
    "cooking-salt": "A soup with too much salt is saved by adding unsalted stock or a few potatoes, not by sugar.",
    "law-contract": "A contract can be made by word of mouth, but whoever relies on it has to prove what was agreed.",
    "law-minor": "An agreement signed by somebody under eighteen binds only if the parents consent to it.",
    "law-warranty": "Goods that break within two years are repaired or replaced by the seller at no charge to the buyer.",
    "law-will": "A will written by hand is valid without a witness if it is signed and shows the date.",
    "law-withdrawal": "Purchases made over the internet may be sent back within fourteen days without giving a reason.",
    "health-fever": "A child with a temperature above forty degrees that does not fall within a day should see a doctor.",
    "health-sleep": "Adults who go to bed at the same hour each night fall asleep sooner than those who do not.",
    "health-back": "Most pain in the lower back passes within six weeks, sooner for people who keep moving.",
    "health-ticks": "Pull a tick out slowly with tweezers, and watch the skin around the bite for a red ring.",
    "health-sun": "Sunscreen should go on twenty minutes before going out, and again after swimming.",
    "garden-tomato": "Tomatoes planted before the last frost of May are often lost; keep them on the window sill till then.",
    "garden-slugs": "Copper tape around the beds and watering in the morning keep slugs away from the lettuce.",
    "garden-apple": "An apple tree is pruned in late winter, so that light reaches every branch in summer.",
    "garden-compost": "A heap that smells holds too much wet kitchen waste: mix in twigs, straw or torn cardboard.",
    "garden-bees": "Leave a corner of bare, sunny soil, since most wild bees dig their nests in the ground.",
    "travel-train": "A passenger whose train arrives an hour late gets back a quarter of the fare, and half after two hours.",
    "travel-luggage": "Liquids in hand luggage go into bottles of at most a hundred millilitres, in one clear bag.",
    "travel-passport": "Some countries refuse entry when the passport ends less than six months after the journey.",
    "travel-mountain": "Above three thousand metres, climb no more than five hundred metres from one night to the next.",
    "travel-ferry": "Cars are to be at the ferry ninety minutes before it sails; on foot, half an hour is enough.",
    "money-interest": "Compound interest of seven per cent doubles a sum in about ten years, if nothing is taken out.",
    "money-tax": "Employees who work from home may set off six euros a day against their income, up to a yearly limit.",
    "money-card": "Report a stolen bank card at once: what is charged to it after the call is the bank's loss.",
    "money-inflation": "When prices rise faster than wages, a household can buy less although it earns more.",
    "money-pension": "Those who stop work two years early see their pension cut by a little over seven per cent, for life.",
}

QUESTIONS: dict[str, str] = {
    "When do I get back the money I paid when I moved into the flat?": "housing-deposit",
    "The apartment is freezing because the heating is broken, what are my rights?": "housing-heating",
    "Am I allowed to have a dog in my rented home?": "housing-pets",
    "Why is there mist over the fields at dawn?": "weather-fog",
    "How does ice fall from the sky during a thunderstorm?": "weather-hail",
    "I oversalted the stew, how can I fix it?": "cooking-salt",
    "Can I return something I bought online because I don't like it?": "law-withdrawal",
    "Is a handwritten testament legally valid?": "law-will",
    "How do I remove a tick from my skin?": "health-ticks",
    "What stops snails from eating my salad plants?": "garden-slugs",
    "Do I get compensation for a delayed train?": "travel-train",
    "Somebody took my credit card, who pays for what they buy?": "money-card",
}
