// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package calibration reads and writes calibration files: measured runs with a signature.
//
// It decides whether a file is well formed and signed by a named key. It must not know plans, Kubernetes or the
// location of files. Signatures are Ed25519 from the standard library. A key has 32 bytes and openssl makes one; there
// are no certificates, registries or other dependencies.
package calibration

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/wording"
)

// SchemaVersion is the version of the file format.
const SchemaVersion = 1

// Limits of a file. A ConfigMap holds at most 1 MiB.
const (
	mostBytes = 1 << 20
	mostRuns  = 500
)

// File is a calibration file.
type File struct {
	SchemaVersion int                   `json:"schemaVersion"`
	Measurements  []catalog.Measurement `json:"measurements"`
	Signature     *Signature            `json:"signature,omitempty"`
}

// Signature covers the rest of the file. Key is the public key and Value the signature, both in base64.
type Signature struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Decode reads a file in YAML or JSON, and rejects unknown fields. It does not verify the signature.
func Decode(data []byte) (File, error) {
	if len(data) > mostBytes {
		return File{}, fmt.Errorf("the file has %d bytes, but at most %d are allowed", len(data), mostBytes)
	}
	var f File
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return File{}, errors.New(wording.OneLine(err.Error()))
	}
	if err := f.validate(); err != nil {
		return File{}, err
	}
	return f, nil
}

// validate checks everything in a file except the signature.
func (f *File) validate() error {
	switch {
	case f.SchemaVersion != SchemaVersion:
		return fmt.Errorf("schemaVersion: %d is not supported: this version reads %d", f.SchemaVersion, SchemaVersion)
	case len(f.Measurements) == 0:
		return errors.New("measurements: the list is empty")
	case len(f.Measurements) > mostRuns:
		return fmt.Errorf("measurements: the list has %d entries, but at most %d are allowed", len(f.Measurements), mostRuns)
	}
	seen := map[string]bool{}
	for i := range f.Measurements {
		m := &f.Measurements[i]
		err := m.Validate()
		switch {
		case err != nil:
		case m.Source == "" || m.Date == "":
			err = errors.New("source and date: both must be set")
		case seen[strings.ToLower(m.Name)]:
			err = errors.New("an earlier measurement has the same name")
		}
		if err != nil {
			return fmt.Errorf("measurements[%d] %q: %w", i, m.Name, err)
		}
		seen[strings.ToLower(m.Name)] = true
	}
	return nil
}

// signed returns the bytes that the signature covers: the content, not its layout in the file. The strict decoder makes
// sure that there is no other content.
func (f *File) signed() ([]byte, error) {
	content, err := json.Marshal(File{SchemaVersion: f.SchemaVersion, Measurements: f.Measurements})
	if err != nil {
		return nil, fmt.Errorf("encoding a calibration file: %w", err)
	}
	return append([]byte("modelberth.dev/calibration/v1\n"), content...), nil
}

// Sign signs a file and replaces an earlier signature.
func (f *File) Sign(key ed25519.PrivateKey) error {
	if err := f.validate(); err != nil {
		return err
	}
	content, err := f.signed()
	if err != nil {
		return err
	}
	public, _ := key.Public().(ed25519.PublicKey)
	f.Signature = &Signature{Key: EncodeKey(public), Value: base64.StdEncoding.EncodeToString(ed25519.Sign(key, content))}
	return nil
}

// Verify checks that one of the given keys signed the file. The key in the file only says which one.
func (f *File) Verify(keys []ed25519.PublicKey) error {
	if f.Signature == nil {
		return errors.New("it has no signature: export the file with kubectl berth bench --export and --sign-key")
	}
	value, err := base64.StdEncoding.Strict().DecodeString(f.Signature.Value)
	if err != nil {
		return errors.New("signature.value: it is not in base64")
	}
	content, err := f.signed()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if EncodeKey(key) != f.Signature.Key {
			continue
		}
		if ed25519.Verify(key, content, value) {
			return nil
		}
		return errors.New("its content does not match its signature: restore the original file, or measure again")
	}
	return fmt.Errorf("signature.key: %s is not one of the trusted keys: if you trust the owner of this key, add the key to calibration.keys in the chart's values or to --calibration-key",
		wording.Clip(f.Signature.Key, longestKey))
}

// longestKey exceeds the length of any key in base64.
const longestKey = 64

// Open returns the runs of a file that one of the keys signed.
func Open(data []byte, keys []ed25519.PublicKey) ([]catalog.Measurement, error) {
	f, err := Decode(data)
	if err != nil {
		return nil, err
	}
	if err := f.Verify(keys); err != nil {
		return nil, err
	}
	return f.Measurements, nil
}

// Encode writes a file as YAML.
func (f *File) Encode() ([]byte, error) {
	data, err := yaml.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encoding a calibration file: %w", err)
	}
	return data, nil
}

// EncodeKey encodes a public key in base64.
func EncodeKey(key ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(key) }

// DecodeKeys decodes public keys in base64.
func DecodeKeys(texts []string) ([]ed25519.PublicKey, error) {
	keys := make([]ed25519.PublicKey, 0, len(texts))
	for _, text := range texts {
		key, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("%q is not an Ed25519 public key: give its 32 bytes in base64, as signature.key of a file",
				wording.Clip(text, longestKey))
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// DecodePrivateKey reads a private key in PEM, as written by openssl genpkey -algorithm ed25519.
func DecodePrivateKey(data []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(bytes.TrimSpace(data))
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("it is not an unencrypted private key in PEM: make one with openssl genpkey -algorithm ed25519")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("its private key cannot be read: make one with openssl genpkey -algorithm ed25519")
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("its private key is not an Ed25519 key: make one with openssl genpkey -algorithm ed25519")
	}
	return key, nil
}

// Add returns a catalogue with the runs of a file that one of the keys signed. Errors contain the file's name.
func Add(c *catalog.Catalog, name string, data []byte, keys []ed25519.PublicKey) (*catalog.Catalog, error) {
	runs, err := Open(data, keys)
	if err != nil {
		return nil, fmt.Errorf("calibration file %q: %w", name, err)
	}
	out, err := c.WithMeasurements(runs)
	if err != nil {
		return nil, fmt.Errorf("calibration file %q: %w", name, err)
	}
	return out, nil
}
