"""A model of ours behind Inspect's interface."""

from typing import TYPE_CHECKING, Any

from core.endpoint import Question
from eval.inspecting.messages import as_inspect
from eval.models import Model

if TYPE_CHECKING:
    import inspect_ai.model


def wrap(model: Model) -> "inspect_ai.model.Model":
    """`model` as one of Inspect's. It reads nothing but `extra_body`: the fields of a Question."""
    from inspect_ai.model import (
        ChatMessage,
        GenerateConfig,
        ModelAPI,
        ModelOutput,
        ModelUsage,
        modelapi,
    )
    from inspect_ai.model import Model as InspectModel
    from inspect_ai.tool import ToolChoice, ToolInfo

    @modelapi(name="forja")
    class Forja(ModelAPI):
        async def generate(
            self,
            input: list[ChatMessage],  # noqa: A002, the base class names it so
            tools: list[ToolInfo],
            tool_choice: ToolChoice,
            config: GenerateConfig,
        ) -> ModelOutput:
            body = config.extra_body
            assert body is not None
            answer = await model.ask(Question(**body))
            output = ModelOutput.from_message(
                as_inspect([answer.message])[0],  # type: ignore[arg-type]
                stop_reason="max_tokens" if answer.finish == "length" else "stop",
            )
            output.metadata = {"message": answer.message}
            output.usage = ModelUsage()  # Inspect would count tokens with tiktoken, which downloads
            return output

        async def count_text_tokens(self, text: str) -> int:
            return len(text) // 4

        async def count_tokens(
            self,
            input: Any,  # noqa: A002
            config: GenerateConfig | None = None,
        ) -> int:
            return len(str(input)) // 4

        def max_connections(self) -> int:
            return 1 << 20

    return InspectModel(Forja(model.name.replace("/", "-")), GenerateConfig())
