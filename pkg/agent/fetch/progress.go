// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fetch describes how far the agent has fetched the files of a model. The agent answers with it over HTTP,
// and the command line shows it, on every platform. It knows neither files nor the network.
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
	// AwaitMember is how long the next port may take to open: another member's image may still be pulled.
	AwaitMember = 15 * time.Minute
	// LongestHold bounds the cost of a wrong clock, of the agent or of the controller.
	LongestHold = 5 * time.Minute
	// LongestStall is the longest life of an agent that makes no progress and is not held for its group's isolation.
	LongestStall = GiveUpAfter + LongestHold + AwaitMember
)

// Stages of a file, and of the whole: the least advanced file's.
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

// Remaining is the remaining time in seconds at the present rate; 0 if the rate is unknown.
func (p Progress) Remaining() int64 {
	if p.BytesPerSecond <= 0 {
		return 0
	}
	return (p.TotalBytes - p.Bytes + p.BytesPerSecond - 1) / p.BytesPerSecond
}

// And returns the progress of both together, at the stage of the less advanced one.
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

// IsEarlier orders the stages by the current activity: while one file is fetched, the whole is being fetched.
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
