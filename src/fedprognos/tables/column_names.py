"""What the name of a column says about its role, in eight languages; and when two names are one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence

_NAMES = {
    "unit": "unit machine engine asset device battery cell equipment vehicle turbine pump robot maschine maschinen "
    "anlage anlagen geraet pumpe motor zelle batterie fahrzeug aggregat serial moteur appareil equipement vehicule "
    "pompe cellule maquina equipo unidad bateria celda bomba id "
    "maszyna urzadzenie silnik pompa ogniwo macchina motore batteria cella dispositivo pomp",
    "time": "cycle cycles time hour hours step day days date datetime t second seconds sec timestamp ts age flight "
    "zeit zeitstempel datum betriebsstunden stunde stunden zyklus zyklen laufzeit betriebszeit tag temps heure heures "
    "jour jours horodatage duree tiempo hora horas dia dias fecha ciclo ciclos "
    "czas godzina godziny cykl cykle dzien tempo ora ore cicli giorno giorni tijd uur uren cyclus dag",
    "cycle": "cycle cycles discharge charge zyklus zyklen entladung decharge ciclo ciclos descarga "
    "cykl cykle cicli cyclus rozladowanie scarica",
    "site": "site plant factory location client owner customer region operator airline company depot farm line "
    "fab tenant branch werk standort kunde betreiber betrieb firma eigentuemer besitzer halter usine proprietaire "
    "exploitant atelier "
    "entreprise planta fabrica sitio cliente propietario empresa "
    "zaklad fabryka klient wlasciciel oddzial stabilimento fabbrica impianto proprietario fabriek vestiging klant",
    "life": "life lifetime run repair repairs overhaul installation leben vie vida",
    "health": "capacity soh health kapazitaet kapazitat capacite sante capacidad salud "
    "pojemnosc capacita capacidade capaciteit",
    "rul": "rul remaining ttf restlebensdauer restlaufzeit restante verbleibend verbleibende "
    "pozostalo pozostaly rimanente restduur",
    "failed": "failed failure event broken fault dead ausfall ausgefallen defekt panne defaillance fallo averia "
    "awaria uszkodzenie guasto falha storing",
    "status": "status state zustand etat estado",
    "setting": "setting settings condition regime mode load altitude mach tra op throttle ambient",
}
"""Words of each role, without accents, in English, German, French, Spanish, Polish, Italian, Portuguese and Dutch.

The earlier, the surer.
"""
_WORDS = {role: tuple(words.split()) for role, words in _NAMES.items()}


def pick(columns: Sequence[str], role: str, fits: Callable[[str], bool], named: bool = False) -> str | None:
    """The fitting column whose name says most about the role; without `named`, at worst any fitting one."""
    order = [c for c in by_name(columns, role) if not named or rank(c, role) is not None]
    return next((c for c in order if fits(c)), None)


def by_name(columns: Sequence[str], role: str) -> list[str]:
    """Columns whose name says most about the role first."""
    return sorted(columns, key=lambda c: len(_WORDS[role]) if (place := rank(c, role)) is None else place)


def rank(column: str, role: str) -> int | None:
    """Place of the first of the role's words in the name, None where it has none of them.

    >>> rank("MachineId", "unit"), rank("heat", "unit"), rank("Werksnummer", "site") == rank("Werk", "site")
    (1, None, True)
    >>> rank("SoH [%]", "health"), rank("time_to_failure", "rul"), rank("time_to_failure", "time")
    (1, 2, None)
    """
    column = re.sub(r"(?i)time[ _-]?to[ _-]?(failure|fail|event|end[ _-]?of[ _-]?life|eol)", "ttf", column)
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column)  # MachineId is two words, but SoH is one
    words = [w for w in re.split(r"[^a-z]+", plain_letters(f"{split} {column}")) if w]
    words = [re.sub(r"(n|s)?(nummer|nr)$", "", w) or w for w in words]
    return next((k for k, word in enumerate(_WORDS[role]) if word in words), None)


def plain_letters(text: str) -> str:
    """A text in small letters without accents, umlauts as they are spelled without them.

    >>> plain_letters("Gerät"), plain_letters("Capacité"), plain_letters("Zakład")
    ('geraet', 'capacite', 'zaklad')
    """
    spelled = text.casefold().translate({ord("ä"): "ae", ord("ö"): "oe", ord("ü"): "ue", ord("ł"): "l", ord("ø"): "o"})
    return "".join(c for c in unicodedata.normalize("NFKD", spelled) if not unicodedata.combining(c))


def folded(text: object) -> str:
    """A name without what people write now so and now so: case and spaces.

    >>> folded("KLM  Royal "), folded("klm royal")
    ('klm royal', 'klm royal')
    """
    return " ".join(str(text).casefold().split())


def one_spelling(counts: Mapping[str, int]) -> dict[str, str]:
    """The commonest spelling of every name that differs in case and spaces only.

    >>> one_spelling({"KLM": 2, "klm": 1, "Iberia": 1})
    {'KLM': 'KLM', 'klm': 'KLM', 'Iberia': 'Iberia'}
    """
    usual: dict[str, str] = {}
    for name, count in counts.items():
        if count > counts.get(usual.get(folded(name), ""), 0):
            usual[folded(name)] = name
    return {name: usual[folded(name)] for name in counts}
