// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/test/localcloud/controlplane"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/supervisor"
)

// settings are up's flags for the supervisor.
type settings struct {
	binDir     string
	coreDNS    string
	skus       string
	pauseImage string
	// Whether machines are only objects.
	hollow bool
	// If the API server's books are special.
	auditPolicy string
	// How many requests the API server serves at once; 0 leaves it its own measure.
	inFlight int
	apiPort  int
}

// register adds the flags. Their defaults match the Makefile's exports and builds, so none is necessary in the source
// tree.
func (s *settings) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.binDir, "bin-dir", os.Getenv("KUBE_BIN"),
		"directory with etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kube-proxy (default $KUBE_BIN)")
	flags.StringVar(&s.coreDNS, "coredns", os.Getenv("COREDNS"), "the CoreDNS program (default $COREDNS)")
	flags.StringVar(&s.skus, "skus", "presets/skus", "directory of the machine types for sale")
	flags.StringVar(&s.pauseImage, "pause-image", builtPauseImage(), "file of the pause image (default $IMAGES/pause.tar)")
	flags.BoolVar(&s.hollow, "hollow", false, "sell simulated machines: only a Ready Node, whose pods report that they run")
	flags.StringVar(&s.auditPolicy, "audit-policy", "", "file with the audit policy of the API server; empty means the local cloud's own")
	flags.IntVar(&s.inFlight, "in-flight", 0, "maximum number of requests that the API server serves at once; 0 means its default, 600")
	flags.IntVar(&s.apiPort, "api-port", 0, "loopback port for the API server; 0 means any free port")
}

// builtPauseImage returns the path of `make images`' pause image.
func builtPauseImage() string {
	images := os.Getenv("IMAGES")
	if images == "" {
		return ""
	}
	return filepath.Join(images, "pause.tar")
}

// args returns the flags for the supervisor, with absolute paths: it works in another directory.
func (s *settings) args() ([]string, error) {
	args := []string{fmt.Sprintf("--api-port=%d", s.apiPort), fmt.Sprintf("--in-flight=%d", s.inFlight), fmt.Sprintf("--hollow=%t", s.hollow)}
	for _, path := range []struct{ flag, value string }{
		{"bin-dir", s.binDir},
		{"coredns", s.coreDNS},
		{"skus", s.skus},
		{"pause-image", s.pauseImage},
		{"audit-policy", s.auditPolicy},
	} {
		if path.value == "" {
			continue
		}
		absolute, err := filepath.Abs(path.value)
		if err != nil {
			return nil, fmt.Errorf("flag --%s: %w", path.flag, err)
		}
		args = append(args, "--"+path.flag+"="+absolute)
	}
	return args, nil
}

// self is this very program, also after its file was replaced by a newer build:
// a cloud must not be made of two versions.
const self = "/proc/self/exe"

func (s *settings) options(l layout.Layout) (supervisor.Options, error) {
	models, err := models()
	if err != nil {
		return supervisor.Options{}, err
	}
	return supervisor.Options{
		Layout:     l,
		Programs:   controlplane.Programs{BinDir: s.binDir, CoreDNS: s.coreDNS, Self: self},
		SKUs:       s.skus,
		PauseImage: s.pauseImage, AuditPolicy: s.auditPolicy, InFlight: s.inFlight, Hollow: s.hollow,
		APIPort: s.apiPort,
		Hub:     models,
	}, nil
}
