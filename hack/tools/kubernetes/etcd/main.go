// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command etcd is the upstream server. We build it from its module, because Debian's package is too old for this API
// server.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
