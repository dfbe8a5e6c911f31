// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"

	"github.com/modelberth/modelberth/pkg/hub"
)

// marker records that a file is verified and safely on disk. After a restart, the file needs no hashing while its size
// and modification time are the same.
type marker struct {
	Version    int        `json:"version"`
	Repo       string     `json:"repo"`
	Revision   string     `json:"revision"`
	Commit     string     `json:"commit"`
	Size       int64      `json:"size"`
	ModifiedNs int64      `json:"modifiedNs"`
	Digest     hub.Digest `json:"digest"`
}

const markerVersion = 1

// answers reports whether the marked file is the wanted one. It compares the requested name of the revision, not the
// commit: weights of a running engine must not change because a branch moved. A checksum takes precedence over a name.
func (m marker) answers(w want) bool {
	if !w.given.IsZero() {
		return m.Digest == w.given
	}
	return m.Repo == w.file.Repo && m.Revision == w.file.Revision
}

func (v *volume) readMarker(path string) (marker, bool) {
	var m marker
	data, err := v.readRecord(path + markerSuffix)
	if err != nil || decodeStrict(data, &m) != nil || m.Version != markerVersion {
		return marker{}, false
	}
	info, err := v.root.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != m.Size || info.ModTime().UnixNano() != m.ModifiedNs {
		return marker{}, false
	}
	return m, true
}

func (v *volume) writeMarker(path string, t target) error {
	info, err := v.root.Stat(path)
	if err != nil {
		return storageError(path, err)
	}
	data, err := json.Marshal(marker{
		Version: markerVersion, Repo: t.file.Repo, Revision: t.file.Revision, Commit: t.commit,
		Size: info.Size(), ModifiedNs: info.ModTime().UnixNano(), Digest: t.digest,
	})
	if err != nil {
		return fmt.Errorf("encoding the marker of %q: %w", path, err)
	}
	return v.writeRecord(path+markerSuffix, data)
}
