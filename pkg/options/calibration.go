// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto/ed25519"
	"errors"
	"flag"

	"github.com/modelberth/modelberth/pkg/calibration"
)

// Calibration has the sources of measured figures.
type Calibration struct {
	// Files is a directory with calibration files; empty means none.
	Files string
	// Keys are the public keys that may sign the files.
	Keys []ed25519.PublicKey
	// OwnStarts makes plans use the measured memory of engine starts in their namespace.
	OwnStarts bool
	// OwnSpeeds makes plans use the measured speed of engines in their namespace.
	OwnSpeeds bool
}

func (c *Calibration) bind(flags *flag.FlagSet) {
	flags.StringVar(&c.Files, "calibration-files", "",
		"directory with signed files of measured runs, as kubectl berth bench --export writes them; changes apply without a restart")
	flags.BoolVar(&c.OwnStarts, "calibrate-from-starts", true,
		"lower the KV cache of plans if engines of the same model in the same namespace started with less than planned")
	flags.BoolVar(&c.OwnSpeeds, "calibrate-from-speeds", true,
		"lower the predicted speed of plans if engines of the same model in the same namespace were slower than predicted; this applies to engines whose metrics are read for autoscaling or for the cost ledger")
	flags.Func("calibration-key", "public key that may sign calibration files, in base64: signature.key of a file; repeatable",
		func(value string) error {
			keys, err := calibration.DecodeKeys([]string{value})
			c.Keys = append(c.Keys, keys...)
			return err
		})
}

func (c *Calibration) validate() []error {
	if (c.Files == "") != (len(c.Keys) == 0) {
		return []error{errors.New("--calibration-files and --calibration-key belong together: name the directory and at least one key")}
	}
	return nil
}
