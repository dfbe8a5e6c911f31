// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/pkg/wording"
)

// chatCommand is kubectl berth chat.
type chatCommand struct {
	connection

	model, system string
	maxTokens     int
	noStream      bool
}

func newChat(w World) *cobra.Command {
	c := &chatCommand{}
	cmd := &cobra.Command{
		Use:   "chat NAME [PROMPT...]",
		Short: "Talk to the model of a Workspace",
		Long: `Talk to the model of a Workspace, through a port-forward to the pod of the endpoint.

The prompt is the rest of the command line, or the standard input. Without a prompt, on a terminal, the command
starts a conversation: Ctrl-C cancels an answer, and Ctrl-D or /exit ends it. The thoughts of a reasoning model
are dimmed on a terminal and left out elsewhere.`,
		Example: `  kubectl berth chat my-model
  kubectl berth chat my-model Why is the sky blue?
  git diff | kubectl berth chat my-model --system 'Write a commit message for this change.'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), w, args[0], strings.Join(args[1:], " "))
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.model, "model", "", "name of the model or of an adapter (default: the endpoint's first)")
	f.StringVar(&c.system, "system", "", "system prompt")
	f.IntVar(&c.maxTokens, "max-tokens", 0, "maximum length of an answer in tokens; 0 means no limit")
	f.BoolVar(&c.noStream, "no-stream", false, "print the answer only when it is complete")
	c.connection.bind(cmd, w)
	return cmd
}

func (c *chatCommand) run(ctx context.Context, w World, name, prompt string) error {
	if c.maxTokens < 0 {
		return usageError("--max-tokens is %d: it must be at least 1, or 0 for no limit", c.maxTokens)
	}
	if prompt == "" && !w.Typing {
		text, err := piped(w.In)
		if err != nil {
			return err
		}
		prompt = text
	}
	cluster, err := c.open()
	if err != nil {
		return err
	}
	ws, err := cluster.workspace(ctx, name)
	if err != nil {
		return err
	}
	if _, err := cluster.answering(ctx, ws); err != nil {
		return err
	}
	model, err := servedModel(ws, c.model)
	if err != nil {
		return err
	}
	talk := &conversation{
		reach: func(ctx context.Context) (*endpoint, error) { return cluster.endpoint(ctx, ws) },
		out:   w.Out, style: newStyle(w),
		question: question{Model: model, MaxTokens: c.maxTokens, Stream: !c.noStream},
	}
	if c.system != "" {
		talk.question.Messages = []message{{"system", c.system}}
	}
	if prompt != "" {
		return talk.say(ctx, prompt)
	}
	fmt.Fprintf(w.Err, "Talking to %s of Workspace %s. Ctrl-C cancels an answer; /exit or Ctrl-D ends.\n", model, key(ws))
	return talk.converse(ctx, w)
}

// piped reads a prompt from a pipe.
func piped(in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, mostBytes+1))
	switch {
	case err != nil:
		return "", usageError("cannot read the prompt: %w", err)
	case len(text) > mostBytes:
		return "", usageError("the prompt has more than %d MiB", mostBytes>>20)
	case strings.TrimSpace(string(text)) == "":
		return "", usageError("there is no prompt: write one after the Workspace's name, or pipe one in")
	}
	return string(text), nil
}

// conversation is the history of messages.
type conversation struct {
	// reach opens a connection to the server that lasts until the context ends.
	reach    func(context.Context) (*endpoint, error)
	out      io.Writer
	style    style
	question question
}

// converse sends each typed line as a message until the input ends.
func (t *conversation) converse(ctx context.Context, w World) error {
	lines := bufio.NewScanner(w.In)
	lines.Buffer(nil, mostBytes)
	for {
		fmt.Fprint(w.Out, t.style.paint(bold, "> "))
		if !lines.Scan() {
			fmt.Fprintln(w.Out)
			return lines.Err()
		}
		line := strings.TrimSpace(lines.Text())
		switch line {
		case "":
			continue
		case "/exit", "/quit":
			return nil
		}
		answering, stop := w.interruptible(ctx)
		err := t.say(answering, line)
		stop()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.Canceled):
			fmt.Fprintln(w.Out, t.style.paint(dim, "(cancelled)"))
		case err != nil:
			fmt.Fprintln(w.Err, t.style.paint(red, wording.OneLine(err.Error())))
		}
	}
}

func (w World) interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.Interrupt == nil {
		return context.WithCancel(ctx)
	}
	return w.Interrupt(ctx)
}

// say sends one message and prints the answer. After a failure, the conversation is unchanged.
func (t *conversation) say(ctx context.Context, prompt string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := t.reach(ctx)
	if err != nil {
		return err
	}
	asked := t.question
	asked.Messages = append(append([]message{}, t.question.Messages...), message{"user", prompt})
	var answer strings.Builder
	thinking, finish := false, ""
	err = server.ask(ctx, &asked, func(got *piece) {
		for i := range got.Choices {
			choice := &got.Choices[i]
			thought := choice.Delta.Reasoning + choice.Message.Reasoning
			if thought != "" && t.style.colours {
				thinking = true
				fmt.Fprint(t.out, t.style.paint(dim, thought))
			}
			if text := choice.Delta.Content + choice.Message.Content; text != "" {
				if thinking {
					thinking = false
					fmt.Fprint(t.out, "\n\n")
				}
				answer.WriteString(text)
				fmt.Fprint(t.out, text)
			}
			if choice.FinishReason != "" {
				finish = choice.FinishReason
			}
		}
	})
	if answer.Len() > 0 || thinking {
		fmt.Fprintln(t.out)
	}
	if err != nil {
		return err
	}
	if finish == "length" && t.style.colours {
		fmt.Fprintln(t.out, t.style.paint(dim, "(cut off at the maximum length)"))
	}
	asked.Messages = append(asked.Messages, message{"assistant", answer.String()})
	t.question = asked
	return nil
}
