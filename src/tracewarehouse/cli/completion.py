"""`tw completion`: the script that makes the shell complete."""

from __future__ import annotations

import click

from tracewarehouse.cli.session import Session, examples, output_options, pass_session


@click.command(
    epilog=examples(
        'eval "$(tw completion bash)"      # or add that line to ~/.bashrc',
    )
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@output_options
@pass_session
def completion(session: Session, /, shell: str) -> None:
    """Print the script that completes commands, runs and analyses in your shell."""
    from click.shell_completion import get_completion_class

    from tracewarehouse.cli.app import app

    script = get_completion_class(shell)
    assert script is not None
    text = script(app, {}, "tw", "_TW_COMPLETE").source()
    session.out.say(text, [{"shell": shell, "script": text}])
