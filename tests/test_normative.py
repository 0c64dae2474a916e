"""Which lines of a SKILL.md bind, and what its procedure is."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dataset_builder.documents.normative import normative_lines
from dataset_builder.documents.procedures import Procedure, called_tools, procedure
from dataset_builder.documents.skills import Skill
from dataset_builder.schemas import ToolSchema


def tool(key: str) -> ToolSchema:
    server, _, name = key.partition(".")
    return ToolSchema(server=server, name=name, description="", parameters={}, sha256="")


KEYS = (
    "git.git_status",
    "git.git_push",
    "git.get_me",
    "gitea.get_me",
    "penpot.execute_code",
    "penpot.export-shape",
)
TOOLS = {key: tool(key) for key in KEYS}


def forces(markdown: str) -> list[tuple[str, str]]:
    return [(line.text, line.force) for line in normative_lines(markdown)]


def read(body: str, description: str = "D") -> Procedure:
    return procedure(
        Skill(name="s", description=description, body=body, path=Path("s/SKILL.md"), body_line=5), TOOLS
    )


@pytest.mark.parametrize(
    ("line", "force"),
    [
        ("NUNCA publiques.", "never"),
        ("Nunca publiques.", "never"),
        ("Si falla, nunca publiques.", "never"),
        ("JAMÁS publiques.", "never"),
        ("PROHIBIDO publicar.", "never"),
        ("NO DEBES publicar.", "never"),
        ("NO uses la rama principal.", "never"),
        ("Si existe, no la crees.", "never"),
        ("Never push.", "never"),
        ("You must NOT push.", "must"),
        ("MUST NOT push.", "never"),
        ("DO NOT push.", "never"),
        ("Don't push.", "never"),
        ("**Do not push.**", "never"),
        ("SIEMPRE mira el estado.", "always"),
        ("Mira el estado, SIN EXCEPCIÓN.", "always"),
        ("ALWAYS look.", "always"),
        ("OBLIGATORIO mirar.", "must"),
        ("Debes mirar.", "must"),
        ("You must look.", "must"),
        ("**REQUIRED** before all: look.", "must"),
        ("ANTES DE publicar, mira.", "before"),
        ("Antes de publicar, mira.", "before"),
        ("Look BEFORE you push.", "before"),
        ("DESPUÉS DE publicar, avisa.", "after"),
        ("After the push, tell them.", "after"),
        ("Publica SOLO SI está limpio.", "only_if"),
        ("Push only if it is clean.", "only_if"),
        ("Do not use this skill for tags.", "not_when"),
        ("**NO uses esta skill** si solo preguntan.", "not_when"),
        ("The model never sees it.", None),
        ("Se publica antes de comer.", None),
        ("Mira el estado.", None),
        ("No obstante, mira.", None),
        ("Todo está donde siempre.", None),
    ],
)
def test_a_line_binds_by_its_words(line: str, force: str | None) -> None:
    assert forces(f"# T\n\n- {line}\n") == ([(line, force)] if force else [])


def test_a_line_binds_by_where_it_stands() -> None:
    markdown = """# T
## Pasos
1. Mira.
2. Publica:
   - con cuidado
## Reglas
- Sé breve.
* [x] Sé amable.
## NUNCA
- Publicar en viernes.
## Listas
- [ ] Avisado el equipo.
- Nada más.

Prohibido:
- Borrar ramas
  ajenas.

**Always:**

- Be kind.
## Cuándo no usarla
- Para etiquetas.
"""
    assert forces(markdown) == [
        ("Mira.", "step"),
        ("Publica:", "step"),
        ("Sé breve.", "must"),
        ("Sé amable.", "must"),
        ("Publicar en viernes.", "never"),
        ("Avisado el equipo.", "must"),
        ("Borrar ramas\n  ajenas.", "never"),
        ("Be kind.", "always"),
        ("Para etiquetas.", "not_when"),
    ]


def test_titles_tables_code_and_prose_bind_only_in_capitals() -> None:
    markdown = """# Never mind
## MUST come first

| do | never |
|---|---|
| a | NEVER b |

After years of use, it never fails. You MUST look.

```python
x = 1  # NEVER copied
```
```
NEVER push.
```
<important>
You MUST
look again
</important>
"""
    assert forces(markdown) == [
        ("MUST come first", "must"),
        ("| a | NEVER b |", "never"),
        ("After years of use, it never fails. You MUST look.", "must"),
        ("NEVER push.", "never"),
        ("You MUST", "must"),
    ]


TEMPLATE = """## Informe final
Responde con esto:
```markdown
# Informe
## Resumen
<qué>
### Detalle
NUNCA vacío
```
"""


def test_the_headings_of_the_report_template_bind() -> None:
    assert forces(f"```markdown\n# Otra cosa\n```\n{TEMPLATE}") == [
        ("# Informe", "section"),
        ("## Resumen", "section"),
        ("### Detalle", "section"),
    ]
    found = read(TEMPLATE)
    assert found.sections == ("# Informe", "## Resumen", "### Detalle")
    assert found.template == "# Informe\n## Resumen\n<qué>\n### Detalle\nNUNCA vacío"
    assert (read("# T\n").template, read("# T\n").sections) == (None, ())


def test_the_description_says_when_not() -> None:
    described = "'Publica. No la uses para etiquetas. Do not use for tags.'"
    markdown = f"---\nname: s\ndescription: {described}\n---\n# T\n- NUNCA a.\n"
    assert [(line.line, line.text, line.force) for line in normative_lines(markdown)] == [
        (3, "No la uses para etiquetas.", "not_when"),
        (3, "Do not use for tags.'", "not_when"),
        (6, "NUNCA a.", "never"),
    ]
    assert read("## When not to use\n- For tags.", "Publica. No la uses con etiquetas.").not_when == (
        "No la uses con etiquetas.",
        "For tags.",
    )


@settings(deadline=None)
@given(st.text("aA#-*>`|~\n 1.[]x", max_size=60) | st.text(max_size=40))
@example("NEVER\n- a")
@example("> 1. NEVER\n> b\n\n\tNUNCA c")
def test_whatever_the_text_a_line_is_quoted_word_for_word_from_where_it_stands(text: str) -> None:
    markdown = text.replace("\r", "\n").replace("a", "NEVER do")
    for line in normative_lines(markdown):
        assert line.text in markdown
        assert line.text.split("\n")[0] in markdown.split("\n")[line.line - 1]


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("Mira con `git_status`.", ["git.git_status"]),
        ("Mira con git_status y `mcp__git__git_status`.", ["git.git_status"]),
        ("`git.git_status`, `git:git_push` y `git_push(a, b)`", ["git.git_status", "git.git_push"]),
        ("Exporta con `export-shape`, no con export-shape.", ["penpot.export-shape"]),
        ("`get_me` de Gitea", ["gitea.get_me"]),
        ("`get_me`", ["git.get_me"]),
        ("`ls` y `git push`", []),
        ("Mira con `git_status`, nunca con `git_push`.", ["git.git_status"]),
        ("Mira con `git_status` sin usar `git_push`.", ["git.git_status"]),
        ("Lee los cambios sin preparar con `git_status`.", ["git.git_status"]),
        ("Antes de `git_push`, mira con `git_status`.", ["git.git_status"]),
        ("Do not use `git_push`; use `git_status`.", ["git.git_status"]),
    ],
)
def test_tools_are_found_by_name_but_for_those_that_are_only_spoken_of(text: str, tools: list[str]) -> None:
    assert called_tools(text, TOOLS) == tuple(tools)


def test_steps_are_a_numbered_list_with_what_hangs_on_it() -> None:
    found = read("""Intro

1. No es esto.
2. Ni esto.

## Flujo

1. Mira:
   - con `git_status`

2. Publica
   con `git_push`.

Y ya.

1. Otra.
2. Lista.
""")
    assert [(s.number, s.text, s.tools, s.line) for s in found.steps] == [
        (1, "Mira:", ("git.git_status",), 12),
        (2, "Publica\n   con `git_push`.", ("git.git_push",), 15),
    ]


def test_steps_may_be_titles_or_any_numbered_list_that_is_not_one_of_rules() -> None:
    titled = read(
        "## Step 1: Look\nUse `git_status`.\n### Notes\n1. a\n2. b\n"
        "## Step 2 - Push\nUse `git_push`.\n## End\n`get_me`"
    )
    assert [(s.text, s.tools) for s in titled.steps] == [
        ("Step 1: Look", ("git.git_status",)),
        ("Step 2 - Push", ("git.git_push",)),
    ]
    untitled = read("## Reglas\n1. Sé breve.\n2. Sé amable.\n## Modo de uso\n1. Mira.\n2. Publica.\n")
    assert [s.text for s in untitled.steps] == ["Mira.", "Publica."]
    assert read("- Mira.\n- Publica.\n").steps == ()
