// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"path"
	"runtime"
	"sort"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// defaultUser is the unprivileged user of images.
const defaultUser = 65532

// spec holds the common settings of both kinds of image.
type spec struct {
	entrypoint, tag, out, platform string
	user                           int
	// fixed arguments follow the entrypoint, even if a pod sets its own arguments.
	fixed, arguments, environment, labels list
}

func (s *spec) register(flags *flag.FlagSet) {
	flags.StringVar(&s.entrypoint, "entrypoint", "", "program to start, as a path in the image")
	flags.StringVar(&s.tag, "tag", "", "reference of the image")
	flags.StringVar(&s.out, "out", "", "tar to write")
	flags.StringVar(&s.platform, "platform", "linux/"+runtime.GOARCH, "OS/ARCH[/VARIANT]")
	flags.IntVar(&s.user, "user", defaultUser, "user and group id of the program")
	flags.Var(&s.fixed, "entrypoint-arg", "first argument of the entrypoint, which a pod's arguments follow; repeat for more")
	flags.Var(&s.arguments, "arg", "argument of the entrypoint, which a pod's arguments replace; repeat for more")
	flags.Var(&s.environment, "env", "KEY=VALUE of the environment; repeat for more")
	flags.Var(&s.labels, "label", "KEY=VALUE label; repeat for more")
}

func (s *spec) parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: every value belongs to a flag", flags.Arg(0))
	}
	if s.entrypoint == "" || s.tag == "" || s.out == "" {
		return errors.New("--entrypoint, --tag and --out are needed")
	}
	if _, err := name.NewTag(s.tag); err != nil {
		return fmt.Errorf("--tag %q: %w", s.tag, err)
	}
	if s.user < 0 {
		return fmt.Errorf("--user is %d: give a user id", s.user)
	}
	s.entrypoint = path.Clean("/" + s.entrypoint)
	return nil
}

// created returns the time of every image and file: the epoch, so that builds are reproducible.
func created() time.Time { return time.Unix(0, 0).UTC() }

// image combines layers and configuration.
func (s *spec) image(layers ...v1.Layer) (v1.Image, error) {
	platform, err := v1.ParsePlatform(s.platform)
	if err != nil {
		return nil, fmt.Errorf("--platform %q: %w", s.platform, err)
	}
	labels, err := s.labels.pairs("label")
	if err != nil {
		return nil, err
	}
	if _, err := s.environment.pairs("env"); err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return nil, fmt.Errorf("putting layers together: %w", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the image's configuration: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant = platform.OS, platform.Architecture, platform.Variant
	file.Created = v1.Time{Time: created()}
	file.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", s.user, s.user),
		Entrypoint: append([]string{s.entrypoint}, s.fixed...),
		Cmd:        s.arguments,
		Env:        s.variables(),
		Labels:     labels,
		WorkingDir: "/",
	}
	return mutate.ConfigFile(img, file)
}

// variables returns the image's environment and a default PATH, in a fixed order.
func (s *spec) variables() []string {
	env := append([]string{"PATH=/usr/local/bin:/usr/bin:/bin"}, s.environment...)
	sort.Strings(env)
	return env
}
