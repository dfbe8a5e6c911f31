// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/node"
	"github.com/modelberth/modelberth/test/localcloud/pki"
	"github.com/modelberth/modelberth/test/privileges"
)

// Names of the certificate files.
const (
	authority     = "ca"
	serving       = "apiserver"
	kubeletClient = "kubelet-client"
	aggregator    = "aggregator"
	tokens        = "service-accounts"
)

// aggregatorUser is the API server's user name towards its aggregated APIs.
const aggregatorUser = "front-proxy-client"

// administrators may do everything, and the API server never has them wait for others.
const administrators = "system:masters"

// kubelets is the group of all kubelets. Policies skip the statuses that it writes.
const kubelets = "system:nodes"

// karpenter returns Karpenter's service account.
func karpenter() pki.Subject {
	return pki.Subject{
		User:   "system:serviceaccount:kube-system:karpenter",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"},
	}
}

func (p Plan) cert(name string) string { return filepath.Join(p.Layout.PKI(), name+".crt") }
func (p Plan) key(name string) string  { return filepath.Join(p.Layout.PKI(), name+".key") }
func (p Plan) kubeconfig(user string) string {
	return filepath.Join(p.Layout.Config(), user+".kubeconfig")
}

// AdminKubeconfig is the administrator's access from inside the private network.
func (p Plan) AdminKubeconfig() string { return p.kubeconfig("admin") }

// WriteFiles makes new certificates and writes every file of the programs. hostURL is the API server's URL from the
// host.
func (p Plan) WriteFiles(hostURL string, now time.Time) (*pki.Authority, error) {
	for _, dir := range []string{p.Layout.PKI(), p.Layout.Config()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("making %s: %w", dir, err)
		}
	}
	ca, err := pki.NewAuthority("modelberth-local", now)
	if err != nil {
		return nil, err
	}
	if err := p.writePair(authority, ca.Pair); err != nil {
		return nil, err
	}
	if err := p.writeServerFiles(ca); err != nil {
		return nil, err
	}
	if err := p.writeKubeconfigs(ca, hostURL); err != nil {
		return nil, err
	}
	if p.AuditPolicy == "" {
		if err := write(p.auditPolicy(), []byte(privileges.Policy)); err != nil {
			return nil, err
		}
	}
	return ca, write(filepath.Join(p.Layout.Config(), "Corefile"), p.corefile())
}

func (p Plan) writeServerFiles(ca *pki.Authority) error {
	subjects := map[string]pki.Subject{
		aggregator:    {User: aggregatorUser},
		kubeletClient: {User: "kube-apiserver-kubelet-client", Groups: []string{administrators}},
		serving: {User: "kube-apiserver", Hosts: []string{
			layout.ControlAddress, layout.KubernetesService, "127.0.0.1", "localhost",
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + layout.ClusterDomain,
		}},
	}
	for name, subject := range subjects {
		pair, err := ca.Issue(subject)
		if err != nil {
			return err
		}
		if err := p.writePair(name, pair); err != nil {
			return err
		}
	}
	private, public, err := pki.KeyPair()
	if err != nil {
		return err
	}
	return p.writePair(tokens, pki.Pair{Cert: public, Key: private})
}

func (p Plan) writeKubeconfigs(ca *pki.Authority, hostURL string) error {
	users := []struct {
		path, server string
		subject      pki.Subject
	}{
		{p.Layout.Kubeconfig(), hostURL, pki.Subject{User: "admin", Groups: []string{administrators}}},
		{p.AdminKubeconfig(), APIServerURL(), pki.Subject{User: "localcloud", Groups: []string{administrators}}},
		{p.kubeconfig(ControllerManager), APIServerURL(), pki.Subject{User: "system:kube-controller-manager"}},
		{p.kubeconfig(Scheduler), APIServerURL(), pki.Subject{User: "system:kube-scheduler"}},
		{p.kubeconfig(CoreDNS), APIServerURL(), pki.Subject{User: "system:coredns"}},
		{p.kubeconfig(Karpenter), APIServerURL(), karpenter()},
		{p.kubeconfig(Hollow), APIServerURL(), pki.Subject{User: Hollow, Groups: []string{administrators, kubelets}}},
	}
	for _, user := range users {
		pair, err := ca.Issue(user.subject)
		if err != nil {
			return err
		}
		data, err := node.Kubeconfig(user.server, ca.Cert, pair.Cert, pair.Key)
		if err != nil {
			return fmt.Errorf("rendering the access of %s: %w", user.subject.User, err)
		}
		if err := write(user.path, data); err != nil {
			return err
		}
	}
	return nil
}

func (p Plan) writePair(name string, pair pki.Pair) error {
	if err := write(p.cert(name), pair.Cert); err != nil {
		return err
	}
	return write(p.key(name), pair.Key)
}

func write(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
