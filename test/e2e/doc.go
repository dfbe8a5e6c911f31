// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e runs the whole story on the local cloud, as a user and an administrator live it:
// manifests through kubectl, answers through the Service, the controller as a pod of the chart.
//
// It decides what must be seen from outside. It must not know how the controller does it: it reads
// objects, events and the audit log, and calls nothing of the product but the API's types.
package e2e
