"""What a page of another site has a browser send here: by the headers that browsers add, and pages cannot.

A browser adds the key that its user gave it to every request to this server, whoever made it. Where nobody is asked for
a key, it needs none: being on the machine is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from tasks.errors import TaskError


class CrossSite(TaskError):
    """A page of another site made this request, so it was not carried out; send it by a program, not by a browser."""

    code = "cross_site"


def check_site(method: str, headers: Mapping[str, str], public_url: str) -> None:
    """Refuse what a page of another site had the browser send. Raises CrossSite.

    Looking is let through: the browser shows that page nothing of the answer.
    """
    if method in {"GET", "HEAD", "OPTIONS"}:
        return
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site == "same-origin":
        return
    if site is not None and site != "none":
        raise CrossSite
    if origin is not None and _place(origin) not in {headers.get("host", "").lower(), _place(public_url)} - {""}:
        raise CrossSite


def check_host(headers: Mapping[str, str]) -> None:
    """Where nobody is asked for a key, a page elsewhere could give this machine a name of its own. Raises CrossSite."""
    if not is_own(headers.get("host", "")):
        raise CrossSite("Without a key Flower is for http://localhost and http://127.0.0.1 alone.")


def is_own(host: str) -> bool:
    """Whether a Host is this machine by a name that nobody else can give: localhost, or a loopback address."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
        return name == "localhost" or name.endswith(".localhost") or ip_address(name).is_loopback
    except ValueError:
        return False


def _place(url: str) -> str:
    """Host and port of a URL; nothing of what is none."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""
