// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pin replaces each branch of a model's repository in the presets by a commit, and each tag of an engine's
// image by a digest. It needs access to the hub and the registries. It changes only these values and no other byte.
// Pinned values stay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/modelberth/modelberth/pkg/hub"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Getenv("HF_TOKEN"), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pin:", err)
		os.Exit(1)
	}
}

// errUnpinned means that -check found an unpinned value.
var errUnpinned = errors.New("some presets name a branch or a tag: run make pin on a machine with access to the hub and the registries")

func run(ctx context.Context, args []string, token string, out io.Writer) error {
	flags := flag.NewFlagSet("pin", flag.ContinueOnError)
	dir := flags.String("dir", "presets", "directory of models and engines")
	check := flags.Bool("check", false, "work offline: list the unpinned references, write nothing, and fail if there are any")
	endpoint := flags.String("hub", "", "URL of the hub; default "+hub.DefaultEndpoint)
	if err := flags.Parse(args); err != nil {
		return err
	}
	found, err := scan(*dir)
	if err != nil {
		return err
	}
	if *check {
		for _, p := range found {
			fmt.Fprintln(out, p)
		}
		if len(found) > 0 {
			return errUnpinned
		}
		return nil
	}
	client, err := hub.New(hub.Options{Endpoint: *endpoint, Token: token, HTTP: hub.NewHTTPClient(1), UserAgent: "modelberth-pin"})
	if err != nil {
		return err
	}
	return pin(found, sources{
		commit: func(repo, revision string) (string, error) { return client.Resolve(ctx, repo, revision) },
		digest: func(image string) (string, error) {
			return digestOf(image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
				remote.WithTransport(http.DefaultTransport))
		},
	}, out)
}
