"""Sources for the buckets of long tasks: the example skills and two of other servers, agents, plans."""

import functools
import tempfile
from dataclasses import replace
from pathlib import Path

from core import rules
from dataset_builder import rules_stage
from dataset_builder.documents.agents import load_agents
from dataset_builder.documents.plans import load_plans
from dataset_builder.documents.procedures import procedure
from dataset_builder.documents.skills import Skill, load_scenario, load_skill
from dataset_builder.sources import Sources
from tests import demonstrations
from tests.five_servers import SERVERS, TOOLS

ROOT = Path(__file__).parents[1]
FOLDER = tempfile.TemporaryDirectory()
"""Of the skills that are written here; it goes with the process."""
HELD_OUT = "crear-rama"
PUBLISH = """\
---
name: documentar-issue
description: Documenta una issue en la wiki. Úsala cuando lo pidan. No la uses para editar páginas.
---

# Documentar una issue en la wiki

## Pasos

1. Lee la issue con `jira_get_issue`.
2. Busca con `search_pages` las páginas que hablen de ella.
3. Lee la página encontrada con `get_page`, para no repetirla.
4. Decide qué falta por contar; solo entra lo que diga la issue.
5. Crea la página con `create_page`.
6. Enlázala desde la issue con `jira_add_comment`.
7. Si la wiki está cerrada, avisa con `create_comment`.
8. Escribe el informe final.

## Reglas

- OBLIGATORIO usar `search_pages` antes de `create_page`, porque dos páginas iguales dejan de serlo.
- NUNCA uses `delete_page`: una página borrada se lleva sus comentarios.
- SIEMPRE pasa `title` al crear la página; sin él nadie la encuentra.

## Informe final

Responde con esta plantilla:

```markdown
## Issue
<clave de la issue>
## Página
<título de la página>, en el espacio <id del espacio>
## Comprobaciones
- <resultado de la búsqueda>
## Estado
<Publicada, Pendiente o Descartada>
```
"""
TRIAGE = """\
---
name: triage-issue
description: Triages a Gitea issue. Use it when asked to look into an issue. Do not use it for pull requests.
---

# Triage an issue

### Step 1: Read
Read the issue with `gitea.issue_read`.

### Step 2: Look for duplicates
Search with `search_issues`.

### Step 3: Answer
Add a comment with `gitea.issue_write` that says what you found.

## Rules

- NEVER call `delete_branch`.
- You MUST call `search_issues` before `issue_write`, since a duplicate needs no second discussion.
"""


@functools.cache
def sources() -> Sources:
    """All of it, with the tools of the example's servers and of the mission's."""
    tools = TOOLS | demonstrations._tools()
    folder = Path(FOLDER.name)
    skills = [*demonstrations.SKILLS, *(written(folder, text) for text in (PUBLISH, TRIAGE))]
    scenarios = [(skill, load_scenario(skill, tools)) for skill in skills]
    own = Sources(
        tools=tools,
        requests=[],
        scenarios=[(skill, scenario) for skill, scenario in scenarios if scenario],
        tools_shown=6,
        skill_prompt="body",
        held_out_skills=(HELD_OUT,),
        servers=SERVERS,
        drafts=folder / "rules",
        agents=load_agents([ROOT / "examples/agents"]),
        plans=load_plans([ROOT / "examples/plans"]),
    )
    return with_skills(own, skills)


def with_skills(own: Sources, skills: list[Skill]) -> Sources:
    """The sources with these skills, their procedures and rules; rules are drafted where none are beside."""
    found = {skill.name: rules.read(rules_stage.settle(skill, own.drafts, own.tools)[0]) for skill in skills}
    read = {skill.name: procedure(skill, own.tools) for skill in skills}
    return replace(own, skills=skills, procedures=read, rules=found)


def written(folder: Path, text: str) -> Skill:
    """A skill of this text, in a folder of its name."""
    name = text.split("name: ")[1].split("\n")[0]
    path = folder / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return load_skill(path)
