// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"

	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/modelberth/modelberth/pkg/options"
)

// Main runs modelberth-controller and returns its exit code.
func Main(args []string, stderr io.Writer) int {
	var o options.Controller
	flags := flag.NewFlagSet("modelberth-controller", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o.Bind(flags)
	logging := zap.Options{}
	logging.BindFlags(flags)
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := errors.Join(o.Validate(), o.CheckLive(flags)); err != nil {
		fmt.Fprintf(stderr, "modelberth-controller: %v\n", err)
		return 2
	}
	o.LogLevel = levelOf(&logging)
	logger := zap.New(zap.UseFlagOptions(&logging))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	ctx := ctrl.SetupSignalHandler()
	config, err := ctrl.GetConfig()
	if err != nil {
		logger.Error(err, "no configuration for the API server")
		return 1
	}
	mgr, err := NewManager(ctx, config, o, Hooks{})
	if err != nil {
		logger.Error(err, "setting up failed")
		return 1
	}
	allowGarbage(ctx)
	logger.Info("starting", "version", version())
	if err := mgr.Start(ctx); err != nil {
		logger.Error(err, "the controller ended")
		return 1
	}
	return 0
}

// levelOf makes the logger's level changeable. A development logger without a level begins with debug.
func levelOf(logging *zap.Options) *uberzap.AtomicLevel {
	level := uberzap.NewAtomicLevel()
	switch {
	case logging.Level != nil:
		level.SetLevel(zapcore.LevelOf(logging.Level))
	case logging.Development:
		level.SetLevel(zapcore.DebugLevel)
	}
	logging.Level = level
	return &level
}

// version returns the version of the build, from the module or the source tree.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
