// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/modelberth/modelberth/pkg/hub"
)

const (
	stateVersion = 1
	// maxRecord bounds the size of a sidecar file.
	maxRecord = 1 << 20
)

// state is the progress of a fetch that survives a restart. It identifies the content, not the source, because the same
// bytes may come from anywhere.
type state struct {
	Size   int64
	Digest hub.Digest
	Done   ranges
}

type stateRecord struct {
	Version int        `json:"version"`
	Size    int64      `json:"size"`
	Digest  hub.Digest `json:"digest"`
	Done    [][2]int64 `json:"done"`
}

func encodeState(s state) ([]byte, error) {
	record := stateRecord{Version: stateVersion, Size: s.Size, Digest: s.Digest, Done: [][2]int64{}}
	for _, r := range s.Done {
		record.Done = append(record.Done, [2]int64{r.Start, r.End})
	}
	return json.Marshal(record)
}

// decodeState refuses any record that encodeState cannot have written. A damaged record costs a second fetch, but never
// leads to a wrong file.
func decodeState(data []byte) (state, error) {
	var record stateRecord
	if err := decodeStrict(data, &record); err != nil {
		return state{}, fmt.Errorf("decoding state: %w", err)
	}
	s := state{Size: record.Size, Digest: record.Digest}
	for _, pair := range record.Done {
		s.Done = append(s.Done, hub.Range{Start: pair[0], End: pair[1]})
	}
	switch {
	case record.Version != stateVersion:
		return state{}, fmt.Errorf("decoding state: version is %d, not %d", record.Version, stateVersion)
	case s.Size < 0 || s.Digest.IsZero():
		return state{}, errors.New("decoding state: size or digest is missing")
	case !s.Done.valid(s.Size):
		return state{}, errors.New("decoding state: ranges are out of order or outside the file")
	}
	return s, nil
}

func decodeStrict(data []byte, into any) error {
	if len(data) > maxRecord {
		return fmt.Errorf("record is larger than %d bytes", maxRecord)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the record has trailing data")
	}
	return nil
}
