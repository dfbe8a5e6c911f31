// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/pkg/cosign"
	"github.com/modelberth/modelberth/pkg/mirror"
)

// mirrorCommand is kubectl berth mirror.
type mirrorCommand struct {
	key      string
	insecure bool
}

func newMirror(w World) *cobra.Command {
	c := &mirrorCommand{}
	cmd := &cobra.Command{
		Use:   "mirror BUNDLE REGISTRY",
		Short: "Push the bundle of a release to a registry, for clusters without internet",
		Long: `Push the bundle of a release to a registry, for clusters without internet.

The bundle has the images for every architecture, the chart and their signatures. The digests do not change, and
the chart refers to the images by digest. The command uses the credentials of docker login. A second run
continues an interrupted one.`,
		Example: `  kubectl berth mirror modelberth-0.1.0-bundle.tar registry.example/modelberth --key cosign.pub`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), w, args[0], strings.TrimSuffix(args[1], "/"))
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.key, "key", "", "file with the public keys to trust for the release; without it, signatures are not verified")
	f.BoolVar(&c.insecure, "insecure", false, "allow plain HTTP to the registry")
	return cmd
}

func (c *mirrorCommand) run(ctx context.Context, w World, file, registry string) (err error) {
	keys, err := c.keys()
	if err != nil {
		return err
	}
	bundle, err := mirror.Open(file)
	if err != nil {
		return usageError("%w", err)
	}
	defer func() { err = errors.Join(err, bundle.Close()) }()
	if keys != nil {
		if err := bundle.Verify(keys); err != nil {
			return usageError("%s: nothing was pushed: %w", file, err)
		}
	}
	target := mirror.Target{Registry: registry, Insecure: c.insecure, Keychain: authn.DefaultKeychain}
	version := ""
	err = bundle.Push(ctx, target, func(reference string, entry mirror.Entry) {
		fmt.Fprintf(w.Out, "pushed %s\n", reference)
		if entry.Repository == chartRepository && !entry.IsSignature() {
			version = entry.Tag
		}
	})
	if err != nil {
		return clusterError("%w", err)
	}
	if version == "" {
		return nil
	}
	_, err = fmt.Fprintf(w.Out, "\nInstall with:\n  helm install modelberth oci://%s/%s --version %s --namespace modelberth-system --create-namespace "+
		"--set registry=%s --set 'clouds={CLOUD}'\n", registry, chartRepository, version, registry)
	return err
}

// chartRepository is the chart's repository below the registry.
const chartRepository = "charts/modelberth"

func (c *mirrorCommand) keys() ([]cosign.Key, error) {
	if c.key == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.key)
	if err != nil {
		return nil, usageError("--key: %w", err)
	}
	keys, err := cosign.ParseKeys(string(text))
	if err != nil {
		return nil, usageError("--key %s: %w", c.key, err)
	}
	return keys, nil
}
