"""What was replaced, by type and file, and which value opens more than one thing."""

from collections import Counter, defaultdict


class Report:
    """Counts; it holds placeholders and names, never a value."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """(file, type) -> how many were replaced."""
        self._services: defaultdict[str, set[str]] = defaultdict(set)

    def replaced(self, file: str, kind: str) -> None:
        """Count one replacement."""
        self.counts[file, kind] += 1

    def used_by(self, placeholder: str, service: str) -> None:
        """Note what a value opens: a variable's name, `server.NAME`."""
        if service:
            self._services[placeholder].add(service)

    @property
    def reused(self) -> dict[str, list[str]]:
        """Placeholder -> what its value opens, where that is more than one thing."""
        return {name: sorted(used) for name, used in sorted(self._services.items()) if len(used) > 1}

    def by_type(self) -> dict[str, int]:
        """Type -> count over all files, for a manifest."""
        total: Counter[str] = Counter()
        for (_, kind), count in self.counts.items():
            total[kind] += count
        return dict(sorted(total.items()))

    def lines(self) -> list[str]:
        """The report as lines of text."""
        rows = [(file or "(rows)", kind, count) for (file, kind), count in sorted(self.counts.items())]
        width = max((len(file) for file, _, _ in rows), default=0)
        lines = [f"{file:<{width}}  {kind:<20} {count:>6}" for file, kind, count in rows]
        for name, used in self.reused.items():
            lines.append(f"the same value {name} opens {', '.join(used)}: rotate it, and give each its own")
        return lines
