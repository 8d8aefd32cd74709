"""A harness of ``verifiers`` without a program: it asks the model once, through the run's own endpoint."""

import httpx
import verifiers.v1 as vf

__all__ = ["OneTurnHarness"]


class OneTurnHarness(vf.Harness[vf.HarnessConfig]):
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        _, prompt = self.resolve_text_prompt(data)
        body = {"model": ctx.model, "messages": [{"role": "user", "content": prompt}]}
        async with httpx.AsyncClient(timeout=60) as client:
            url = f"{endpoint.rstrip('/')}/chat/completions"
            answer = await client.post(url, json=body, headers={"Authorization": f"Bearer {secret}"})
        failed = answer.status_code != 200
        return vf.ProgramResult(int(failed), answer.text, answer.text if failed else "")
