// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Reason is the first part of a termination message. The controller matches it.
type Reason string

// The reasons to give up.
const (
	ReasonHubUnreachable   Reason = "HubUnreachable"
	ReasonUnauthorized     Reason = "Unauthorized"
	ReasonNotFound         Reason = "NotFound"
	ReasonChecksumMismatch Reason = "ChecksumMismatch"
	ReasonDiskFull         Reason = "DiskFull"
	// ReasonStorageFailed is a failure of the volume for a reason other than its size.
	ReasonStorageFailed Reason = "StorageFailed"
	// ReasonMemberLost and ReasonMemberReplaced mean that the group of pods is incomplete.
	ReasonMemberLost     Reason = "MemberLost"
	ReasonMemberReplaced Reason = "MemberReplaced"
	// ReasonMemberAbsent means that a member does not listen yet.
	ReasonMemberAbsent Reason = "MemberAbsent"
)

// maxTermination is the number of bytes of a termination message that the kubelet keeps.
const maxTermination = 4096

// Termination is the agent's report of a permanent failure.
type Termination struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

// encode shortens the message to the kubelet's limit.
func (t Termination) encode() ([]byte, error) {
	message := t.Message
	for keep := len(message); ; {
		data, err := marshalPlain(Termination{t.Reason, message})
		over := len(data) - maxTermination
		if err != nil || over <= 0 {
			return data, err
		}
		// JSON needs up to six bytes for one byte of text. So cut conservatively, and check again.
		keep -= (over + 5) / 6
		message = strings.ToValidUTF8(t.Message[:max(0, keep)], "") + "…"
	}
}

// marshalPlain does not escape <, > and &, because people read the message.
func marshalPlain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding termination message: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// write puts the message into the kubelet's file.
func (t Termination) write(path string) error {
	data, err := t.encode()
	if err != nil {
		return err
	}
	return writeLast(path, data)
}

// writeLast writes the termination message. The file is a separate mount, so it is written in place and never
// replaced.
func writeLast(path string, data []byte) error {
	if err := os.WriteFile(path, data, fileMode); err != nil {
		return fmt.Errorf("writing termination message: %w", err)
	}
	return nil
}

// terminate writes the reason of a failure for the kubelet, which shows it to the user.
func terminate(err error, path string) error {
	t := explain(err)
	reason := fmt.Errorf("%s: %s", t.Reason, t.Message)
	return errors.Join(reason, t.write(path))
}
