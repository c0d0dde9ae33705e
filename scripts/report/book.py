"""What every section is given, and what it gives back."""

from dataclasses import dataclass

from .group import Naming
from .html import Markup, tag
from .style import Styles


class Book:
    """All results, with one look for each line on the whole page."""

    def __init__(self, results):
        self.results = results
        self.cases = [case for result in results for case in result.cases]
        self.valid = [case for case in self.cases if case.valid]
        self.naming = Naming(self.cases)
        self.styles = Styles(self.naming(case) for case in self.cases)


@dataclass
class Section:
    title: str
    content: Markup
    id: str

    def markup(self):
        heading = tag("h2", self.title, id=self.id)
        return tag("section", heading, self.content, aria_labelledby=self.id, class_=f"s-{self.id}")


@dataclass
class LeftOut:
    """A section that the files have no data for."""
    title: str
    reason: str

    def markup(self):
        return tag("li", tag("strong", self.title), f": {self.reason}")
