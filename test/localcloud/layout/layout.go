// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package layout decides the places of everything in one local cloud: the paths under its state directory and the
// addresses inside its private network. It only computes names and must not touch the file system or the network.
package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
)

// rootPrefix starts the name of every default state directory.
const rootPrefix = "/var/lib/modelberth-localcloud-"

// maxSocketPath is the longest path of a unix socket address.
const maxSocketPath = 107

// Layout names the files of one local cloud. Two clouds with different roots
// share nothing.
type Layout struct {
	Root string
}

// Of returns the layout of the cloud of a source tree and a name. Each checkout has clouds of its own: one tree's
// tests must not run on, or take down, another's.
func Of(checkout, name string) (Layout, error) {
	if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(name) {
		return Layout{}, fmt.Errorf("name %q of a cloud: use lower-case letters, digits and hyphens between them", name)
	}
	return New(rootPrefix + short(checkout) + "-" + name)
}

// New returns the layout below root, or says why root cannot hold one.
func New(root string) (Layout, error) {
	if !filepath.IsAbs(root) {
		return Layout{}, fmt.Errorf("state directory %q is not an absolute path: give --state-dir a path that starts with /", root)
	}
	l := Layout{Root: filepath.Clean(root)}
	if l.Root == "/" {
		return Layout{}, fmt.Errorf("state directory is /: give a directory that the command down may delete")
	}
	if n := len(l.Socket()); n > maxSocketPath {
		return Layout{}, fmt.Errorf("state directory %q is too long: the socket in it needs %d bytes, a unix socket allows %d; choose a shorter --state-dir", root, n, maxSocketPath)
	}
	return l, nil
}

// Socket is the supervisor's socket: the cloud's machine API, its status and its registry.
func (l Layout) Socket() string { return filepath.Join(l.Root, "cloud.sock") }

// Use is the lock for changes of the cloud. It is beside the state directory: that comes and goes.
func (l Layout) Use() string { return l.Root + ".lock" }

// Lock is held by the supervisor as long as it lives.
func (l Layout) Lock() string { return filepath.Join(l.Root, "lock") }

// Marker is a file that marks our state directories, so down never deletes a foreign directory.
func (l Layout) Marker() string { return filepath.Join(l.Root, "modelberth-localcloud") }

// Kubeconfig is the administrator's access from the host.
func (l Layout) Kubeconfig() string { return filepath.Join(l.Root, "kubeconfig") }

// Script is read by the cloud before each machine is created.
func (l Layout) Script() string { return filepath.Join(l.Root, "script.json") }

// PKI holds keys and certificates.
func (l Layout) PKI() string { return filepath.Join(l.Root, "pki") }

// Config holds the control plane's inputs at start.
func (l Layout) Config() string { return filepath.Join(l.Root, "config") }

// Etcd is etcd's data directory.
func (l Layout) Etcd() string { return filepath.Join(l.Root, "etcd") }

// Blobs is the registry's directory of image layers.
func (l Layout) Blobs() string { return filepath.Join(l.Root, "registry") }

// Processes holds one record for each of the supervisor's processes.
func (l Layout) Processes() string { return filepath.Join(l.Root, "processes") }

// Machines holds one record for each sold machine.
func (l Layout) Machines() string { return filepath.Join(l.Root, "machines") }

// Bill has one line for each machine that ended.
func (l Layout) Bill() string { return filepath.Join(l.Root, "bill.jsonl") }

// Controllers is the record of the host's root control group as it was before.
func (l Layout) Controllers() string { return filepath.Join(l.Root, "controllers.json") }

// Logs holds one file for each component of the control plane.
func (l Layout) Logs() string { return filepath.Join(l.Root, "logs") }

// Log is the log of one component, or of a component of a node when the name
// has the form node/component.
func (l Layout) Log(component string) string {
	if dir, name := filepath.Split(component); dir != "" {
		return filepath.Join(l.NodeLogs(filepath.Clean(dir)), name+".log")
	}
	return filepath.Join(l.Logs(), component+".log")
}

// Nodes holds one directory for each node.
func (l Layout) Nodes() string { return filepath.Join(l.Root, "nodes") }

// Node is the disk of one node.
func (l Layout) Node(name string) string { return filepath.Join(l.Nodes(), name) }

// NodeLogs holds one file for each component of a node.
func (l Layout) NodeLogs(name string) string { return filepath.Join(l.Node(name), "logs") }

// EndedPrefix starts the names of the directories of EndedNodeLogs.
const EndedPrefix = "ended-"

// EndedNodeLogs keeps the logs of a former node.
func (l Layout) EndedNodeLogs(name string) string { return filepath.Join(l.Logs(), EndedPrefix+name) }

// Cgroup is the name of the parent of the nodes' control groups in every hierarchy. It differs between state
// directories, so one cloud never touches another's.
func (l Layout) Cgroup() string { return "modelberth-local-" + short(l.Root) }

// short stands for a path in names of limited length.
func short(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:4])
}
