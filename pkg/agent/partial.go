// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"os"
	"sync"

	"github.com/modelberth/modelberth/pkg/hub"
)

// partial is an incomplete file: NAME.partial with holes, and NAME.partial.json with the written ranges.
type partial struct {
	volume *volume
	path   string
	file   partialFile
	record *os.File
	every  int64 // bytes between two saves
	grown  chan struct{}

	mu      sync.Mutex
	state   state
	unsaved int64
	saving  sync.Mutex
	longest int // record so far, in bytes
}

// checkpointBytes returns the bytes between two records of progress. A killed process loses at most twice as much:
// under one percent of a large file. More frequent records would cost too much.
func checkpointBytes(size int64) int64 { return min(max(size/512, 512<<10), 32<<20) }

// openPartial continues the file of an earlier run if it has a part of the same content. Otherwise it starts a new
// file.
func (v *volume) openPartial(path string, want state) (*partial, error) {
	if err := v.makeDir(path); err != nil {
		return nil, err
	}
	want.Done = v.resumable(path, want)
	file, err := v.open(path + partialSuffix)
	if err != nil {
		return nil, v.writeFailed(path, want.Size, err)
	}
	// Without a record, the origin of the old content is unknown, and it may be longer.
	if len(want.Done) == 0 {
		if err := file.Truncate(0); err != nil {
			return nil, errors.Join(storageError(path, err), file.Close())
		}
	}
	record, err := v.root.OpenFile(path+stateSuffix, os.O_WRONLY|os.O_CREATE, fileMode)
	if err != nil {
		return nil, errors.Join(v.writeFailed(path, want.Size, err), file.Close())
	}
	info, err := record.Stat()
	if err != nil {
		return nil, errors.Join(storageError(path, err), file.Close(), record.Close())
	}
	p := &partial{
		volume: v, path: path, file: file, record: record, longest: int(info.Size()), state: want,
		every: checkpointBytes(want.Size), grown: make(chan struct{}, 1),
	}
	if err := p.checkpoint(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *partial) close() error { return errors.Join(p.file.Close(), p.record.Close()) }

// resumable returns the ranges of want that are on disk from an earlier run.
func (v *volume) resumable(path string, want state) ranges {
	data, err := v.readRecord(path + stateSuffix)
	if err != nil {
		return nil
	}
	old, err := decodeState(data)
	if err != nil || old.Size != want.Size || old.Digest != want.Digest {
		return nil
	}
	info, err := v.root.Stat(path + partialSuffix)
	if err != nil || info.Size() < old.Done.end() {
		return nil
	}
	return old.Done
}

// write stores bytes, and records the written ranges from time to time.
func (p *partial) write(b []byte, at int64) error {
	if _, err := p.file.WriteAt(b, at); err != nil {
		return p.volume.writeFailed(p.path, p.left(), err)
	}
	p.mu.Lock()
	p.state.Done = p.state.Done.add(hub.Range{Start: at, End: at + int64(len(b))})
	p.unsaved += int64(len(b))
	p.mu.Unlock()
	select {
	case p.grown <- struct{}{}:
	default: // follow has not yet seen the last growth
	}
	return p.saveIfDue()
}

// saveIfDue makes one writer save while the others continue. A later save covers their bytes. If the disk is slower
// than the network, the others wait, so that a crash never loses more than twice the interval.
func (p *partial) saveIfDue() error {
	for {
		due, overdue := p.isDue()
		if !due || !overdue && !p.saving.TryLock() {
			return nil
		}
		if overdue {
			p.saving.Lock()
		}
		err := p.saveAgain()
		p.saving.Unlock()
		if err != nil {
			return err
		}
	}
}

// saveAgain saves, unless another writer has saved while this one waited for the lock.
func (p *partial) saveAgain() error {
	if due, _ := p.isDue(); !due {
		return nil
	}
	return p.save()
}

func (p *partial) isDue() (due, overdue bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unsaved >= p.every, p.unsaved >= 2*p.every
}

// checkpoint records the present ranges.
func (p *partial) checkpoint() error {
	p.saving.Lock()
	defer p.saving.Unlock()
	return p.save()
}

// save records the written ranges, by one write over the earlier record. It does not sync: a killed process loses
// nothing, and after a crash of the machine, the checksum reveals the loss. Other records replace their file, but that
// would cost a commit of the file system's journal each time.
func (p *partial) save() error {
	p.mu.Lock()
	now := p.state
	p.unsaved = 0
	p.mu.Unlock()
	data, err := encodeState(now)
	if err != nil {
		return storageError(p.path, err)
	}
	// Spaces overwrite the rest of a longer record.
	data = append(data, bytes.Repeat([]byte{' '}, max(0, p.longest-len(data)))...)
	p.longest = len(data)
	if _, err := p.record.WriteAt(data, 0); err != nil {
		return p.volume.writeFailed(p.path, p.left(), err)
	}
	return nil
}

func (p *partial) done() ranges {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Done
}

func (p *partial) left() int64 { return p.state.Size - p.done().sum() }

// discard removes all bytes, because any of them may be wrong.
func (v *volume) discard(path string) error {
	return errors.Join(v.remove(path+stateSuffix), v.remove(path+partialSuffix))
}
