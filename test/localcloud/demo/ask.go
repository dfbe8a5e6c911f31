// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
)

// usualPort is the model's port on this machine, unless it is taken.
const usualPort = 8000

// question returns the question for the model: the body of a request, with its fields in a person's order.
func question(model string) (string, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	body, err := json.Marshal(struct {
		Model       string    `json:"model"`
		Messages    []message `json:"messages"`
		MaxTokens   int       `json:"max_tokens"`
		Temperature int       `json:"temperature"`
	}{Model: model, Messages: []message{{Role: "user", Content: "Hello!"}}, MaxTokens: 24})
	if err != nil {
		return "", fmt.Errorf("encoding the question: %w", err)
	}
	return string(body), nil
}

// ask sends a question through a port of this machine, with commands for a person to repeat.
func (d *Demo) ask(ctx context.Context) error {
	ctx, cancel := within(ctx, askLimit, "the model did not answer")
	defer cancel()
	endpoint, err := d.endpoint(ctx)
	if err != nil {
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	d.console.Step("asking the model")
	stop, err := d.forward(ctx, endpoint.service, port)
	if err != nil {
		return err
	}
	defer stop()
	body, err := question(endpoint.model)
	if err != nil {
		return err
	}
	args := []string{
		fmt.Sprintf("http://127.0.0.1:%d/v1/chat/completions", port), "--header", "Content-Type: application/json",
		"--silent", "--show-error", "--fail-with-body", "--max-time", "30", "--data", body,
	}
	d.console.Command("curl " + shellJoin(args))
	answer, err := d.tools.run(ctx, d.settings.Curl, args...)
	answered := d.console.now()
	d.console.Print(answer)
	if err != nil {
		return err
	}
	said, err := contentOf(answer)
	if err != nil {
		return err
	}
	d.console.Step("the model said: %q", strings.TrimSpace(said))
	d.console.Print("(The model of the local cloud is a toy that knows a few words of the harbour.)")
	d.console.Step("from the command to the complete answer: %.1f s", answered.Sub(d.settings.Started).Seconds())
	return nil
}

// endpoint is the Workspace's Service and model name.
type endpoint struct{ service, model string }

func (d *Demo) endpoint(ctx context.Context) (endpoint, error) {
	out, err := d.tools.kubectlOutput(ctx, "get", "--filename="+d.settings.Manifest,
		"--output=jsonpath={.metadata.name} {.status.endpoint.models[0]}")
	if err != nil {
		return endpoint{}, err
	}
	name, model, found := strings.Cut(strings.TrimSpace(out), " ")
	if !found {
		return endpoint{}, fmt.Errorf("workspace %s names no model in status.endpoint.models", name)
	}
	return endpoint{service: "service/" + name, model: model}, nil
}

// forward leads a port of this machine to a Service until the returned function is called.
func (d *Demo) forward(ctx context.Context, service string, port int) (func(), error) {
	args := []string{"port-forward", service, fmt.Sprintf("%d:80", port)}
	d.console.Command("kubectl " + shellJoin(args) + " &")
	cmd := d.tools.command(ctx, d.tools.kubectl, args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting kubectl port-forward: %w", err)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting kubectl port-forward: %w", err)
	}
	stop := func() { end(cmd) }
	lines := bufio.NewReader(stdout)
	// It says "Forwarding from" once it listens, or ends.
	if _, err := lines.ReadString('\n'); err != nil {
		stop()
		return nil, cause(ctx, fmt.Errorf("kubectl port-forward ended: %w: %s", err, strings.TrimSpace(complaints.String())))
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return stop, nil
}

// end ends a child; its killing is no error.
func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// freePort returns the usual port, or any other if it is taken.
func freePort(ctx context.Context) (int, error) {
	var problems []error
	for _, port := range []int{usualPort, 0} {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			problems = append(problems, err)
			continue
		}
		address, ok := listener.Addr().(*net.TCPAddr)
		if err := listener.Close(); err != nil || !ok {
			problems = append(problems, err)
			continue
		}
		return address.Port, nil
	}
	return 0, fmt.Errorf("finding a free port: %w", errors.Join(problems...))
}

// contentOf returns the model's answer.
func contentOf(answer string) (string, error) {
	var read struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal([]byte(answer), &read); err != nil {
		return "", fmt.Errorf("the answer is not JSON: %w", err)
	}
	if len(read.Choices) == 0 || read.Choices[0].Message.Content == "" {
		return "", errors.New("the answer is empty")
	}
	return read.Choices[0].Message.Content, nil
}
