// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"flag"

	"github.com/modelberth/modelberth/pkg/workload"
)

// Routers has the settings for reading the comparisons of templates from the routers.
type Routers struct {
	// Pods are the routers; none if no router is installed.
	Pods workload.Consumer
	// Port serves the comparisons. IsPlain: it has no TLS, and needs no token.
	Port    int
	IsPlain bool
	// TokenFile has the token for the routers.
	TokenFile string
	// CAFile has the certificate authority of the routers, for ServerName; empty if each router signs its own
	// certificate.
	CAFile, ServerName string
}

func (r *Routers) bind(flags *flag.FlagSet) {
	flags.Var(&r.Pods, "router-pods", "pods of the routers, as NAMESPACE/LABEL=VALUE[,LABEL=VALUE]; the controller reads their counts "+
		"for InferenceSets that compare templates; default: none")
	flags.IntVar(&r.Port, "router-metrics-port", 8443, "port of the routers' metrics")
	flags.BoolVar(&r.IsPlain, "router-metrics-insecure", false, "read the routers over plain HTTP, without a token")
	flags.StringVar(&r.TokenFile, "router-token-file", "", "file with a ServiceAccount token for the routers")
	flags.StringVar(&r.CAFile, "router-ca-file", "", "file with the certificate authority of the routers; default: certificates are not verified")
	flags.StringVar(&r.ServerName, "router-server-name", "", "name in the routers' certificates; needs --router-ca-file")
}

func (r *Routers) validate() []error {
	switch {
	case !r.Pods.IsNamed():
		return nil
	case r.Port < 1 || r.Port > 65535:
		return []error{errors.New("--router-metrics-port must be between 1 and 65535")}
	case r.IsPlain == (r.TokenFile != ""):
		return []error{errors.New("--router-pods needs either --router-token-file or --router-metrics-insecure")}
	case (r.CAFile == "") != (r.ServerName == ""):
		return []error{errors.New("--router-ca-file and --router-server-name belong together: set both or neither")}
	}
	return nil
}
