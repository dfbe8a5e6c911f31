// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fetch describes the agent's progress in fetching the files of a model. The agent serves it over HTTP, and the
// command line shows it, on every platform. The package must not know files or the network.
package fetch

import (
	"cmp"
	"slices"
	"time"
)

// Limits of an agent that prepares a start.
const (
	// GiveUpAfter is the time without progress of a fetch after which the agent ends, unless its flags say otherwise.
	GiveUpAfter = time.Minute
	// AwaitMember is the time limit for the next member's port to open. A node may still pull that member's image.
	AwaitMember = 15 * time.Minute
	// LongestHold is the longest wait for the engine's start time. It limits the harm of a wrong clock of the agent or
	// the controller.
	LongestHold = 5 * time.Minute
	// LongestStall is the longest life of an agent without progress. It does not apply to an agent held until its group
	// is isolated.
	LongestStall = GiveUpAfter + LongestHold + AwaitMember
)

// Stages of a file. The whole has the stage of the least advanced file.
const (
	StageWaiting   = "waiting"
	StageFetching  = "fetching"
	StageVerifying = "verifying"
	StageReady     = "ready"
)

// Progress is the body of the agent's answers to GET /progress and GET /startupz.
type Progress struct {
	Ready          bool           `json:"ready"`
	Stage          string         `json:"stage"`
	Bytes          int64          `json:"bytes"`
	TotalBytes     int64          `json:"totalBytes"`
	BytesPerSecond int64          `json:"bytesPerSecond"`
	ETASeconds     int64          `json:"etaSeconds"`
	LastError      string         `json:"lastError,omitempty"`
	Files          []FileProgress `json:"files"`
}

// FileProgress is one file's part of Progress.
type FileProgress struct {
	Path       string `json:"path"`
	Stage      string `json:"stage"`
	Bytes      int64  `json:"bytes"`
	TotalBytes int64  `json:"totalBytes"`
}

// Remaining returns the remaining time in seconds at the present rate; 0 if the rate is unknown.
func (p Progress) Remaining() int64 {
	if p.BytesPerSecond <= 0 {
		return 0
	}
	return (p.TotalBytes - p.Bytes + p.BytesPerSecond - 1) / p.BytesPerSecond
}

// And returns the progress of both together. The less advanced one sets the stage.
func (p Progress) And(other Progress) Progress {
	sum := Progress{
		Ready: p.Ready && other.Ready, Stage: p.Stage,
		Bytes: p.Bytes + other.Bytes, TotalBytes: p.TotalBytes + other.TotalBytes,
		BytesPerSecond: p.BytesPerSecond + other.BytesPerSecond,
		LastError:      cmp.Or(p.LastError, other.LastError),
		Files:          slices.Concat(p.Files, other.Files),
	}
	if IsEarlier(other.Stage, sum.Stage) {
		sum.Stage = other.Stage
	}
	sum.ETASeconds = sum.Remaining()
	return sum
}

// IsEarlier reports whether a stage precedes another when stages are combined: while the agent fetches one file, the
// whole is in that stage.
func IsEarlier(stage, other string) bool { return rank(stage) < rank(other) }

func rank(stage string) int {
	switch stage {
	case StageFetching:
		return 0
	case StageVerifying:
		return 1
	case StageWaiting:
		return 2
	}
	return 3
}
