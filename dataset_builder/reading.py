"""All that rows are made from, read once: tools, requests, skills and rules, agents, plans, transcripts."""

from collections import Counter
from pathlib import Path

from core.errors import UserError, did_you_mean
from core.profile import Data
from core.settings import DatasetSettings
from dataset_builder import raw
from dataset_builder.documents.agents import load_agents
from dataset_builder.documents.near_misses import load_near_misses
from dataset_builder.documents.plans import load_plans
from dataset_builder.documents.procedures import procedure
from dataset_builder.documents.skills import load_scenario, load_skills
from dataset_builder.documents.transcripts import read_transcripts
from dataset_builder.rules_stage import load_rules
from dataset_builder.schemas import load_servers, load_tools
from dataset_builder.sources import Sources
from dataset_builder.talking.requests import load_requests


def read(settings: DatasetSettings, data: Data) -> tuple[Sources, Counter[str]]:
    """The sources, and what of the transcripts was left out, by reason.

    Raises UserError on a broken file, naming the user's own, and on a line of a skill that no rule covers.
    """
    schemas, copies, drafts = (settings.data_dir / name for name in ("schemas", "raw", "rules"))
    tools, servers = load_tools(schemas), load_servers(schemas)
    requests = load_requests(Path(settings.requests), tools) if settings.requests else []
    with raw.naming_originals(copies):
        skills = load_skills(raw.directories(copies, "skills"))
        found = [(skill, load_scenario(skill, tools)) for skill in skills]
        near_misses = [case for skill in skills for case in load_near_misses(skill, tools)]
        rules = load_rules(skills, drafts)
        agents = load_agents(raw.directories(copies, "agents"))
        plans = load_plans(raw.directories(copies, "plans"))
        conversations, left_out = read_transcripts(raw.directories(copies, "transcripts"))
    _check_held_out(settings, [skill.name for skill in skills])
    sources = Sources(
        tools=tools,
        servers=servers,
        requests=requests,
        scenarios=[(skill, scenario) for skill, scenario in found if scenario is not None],
        skills=skills,
        near_misses=near_misses,
        procedures={skill.name: procedure(skill, tools) for skill in skills},
        rules=rules,
        drafts=drafts,
        agents=agents,
        plans=plans,
        conversations=conversations,
        tools_shown=settings.tools_shown,
        skill_prompt=data.skill_prompt,
        held_out_skills=settings.held_out_skills,
    )
    return sources, left_out


def _check_held_out(settings: DatasetSettings, skills: list[str]) -> None:
    """UserError on a name that the user gave and no skill has; the profile's may be of other folders."""
    for name in settings.held_out_skills:
        if name not in skills and name not in settings.profile.held_out_skills:
            hint = did_you_mean(name, skills)
            raise UserError(f"HELD_OUT_SKILLS: no skill {name}{hint}; have {', '.join(skills)}")
