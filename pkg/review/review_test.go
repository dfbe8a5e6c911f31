// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// reviewer is an API server with one user, whose token is "good". allows says whether the user may read metrics.
type reviewer struct {
	allows                bool
	audiences             []string
	tokenError, userError error
	asked                 []runtime.Object
}

func (a *reviewer) client(t *testing.T) *fake.Clientset {
	t.Helper()
	c := &fake.Clientset{}
	c.AddReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := created[*authenticationv1.TokenReview](t, action)
		a.asked = append(a.asked, review.DeepCopy())
		if review.Spec.Token == "good" {
			review.Status.Authenticated, review.Status.Audiences = true, a.audiences
		}
		return true, review, a.tokenError
	})
	c.AddReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := created[*authorizationv1.SubjectAccessReview](t, action)
		a.asked = append(a.asked, review.DeepCopy())
		review.Status.Allowed = a.allows
		return true, review, a.userError
	})
	return c
}

func created[T runtime.Object](t *testing.T, action clienttesting.Action) T {
	t.Helper()
	creation, isCreation := action.(clienttesting.CreateAction)
	if !isCreation {
		t.Fatalf("%T is no creation", action)
	}
	object, isOfType := creation.GetObject().(T)
	if !isOfType {
		t.Fatalf("%T is created", creation.GetObject())
	}
	return object
}

func TestGuard(t *testing.T) {
	down := errors.New("the API server is away")
	tests := []struct {
		reason, authorization string
		api                   reviewer
		want, reviews         int
	}{
		{"no token", "", reviewer{allows: true}, http.StatusUnauthorized, 0},
		{"a password", "Basic Z29vZA==", reviewer{allows: true}, http.StatusUnauthorized, 0},
		{"an empty token", "Bearer ", reviewer{allows: true}, http.StatusUnauthorized, 0},
		{"a token that the API server does not know", "Bearer bad", reviewer{allows: true}, http.StatusUnauthorized, 1},
		{"a user who may not", "Bearer good", reviewer{}, http.StatusForbidden, 2},
		{"a user who may", "Bearer good", reviewer{allows: true}, http.StatusOK, 2},
		{"the scheme in lower case, which RFC 9110 allows", "bearer good", reviewer{allows: true}, http.StatusOK, 2},
		{"no answer about the token", "Bearer good", reviewer{allows: true, tokenError: down}, http.StatusServiceUnavailable, 1},
		{"no answer about the user", "Bearer good", reviewer{allows: true, userError: down}, http.StatusServiceUnavailable, 2},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			api := test.api.client(t)
			served, failures := false, 0
			reviews := With(api.AuthenticationV1().TokenReviews(), api.AuthorizationV1().SubjectAccessReviews())
			handler := reviews.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }), func(error) { failures++ })
			request := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
			request.Header.Set("Authorization", test.authorization)
			got := httptest.NewRecorder()
			handler.ServeHTTP(got, request)
			if got.Code != test.want || served != (test.want == http.StatusOK) {
				t.Errorf("answered %d, served %t; want %d", got.Code, served, test.want)
			}
			if (failures > 0) != (test.want == http.StatusServiceUnavailable) {
				t.Errorf("%d failures are reported with status %d", failures, test.want)
			}
			if len(test.api.asked) != test.reviews {
				t.Errorf("the API server got %d reviews, want %d", len(test.api.asked), test.reviews)
			}
		})
	}
}

// TestScrapeIsReviewedAsItsUser: the review covers all attributes of the user.
func TestScrapeIsReviewedAsItsUser(t *testing.T) {
	user := authenticationv1.UserInfo{
		Username: "prometheus", UID: "1", Groups: []string{"scrapers"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"a"}},
	}
	got := requestSpec(&user, httptest.NewRequest(http.MethodGet, "/metrics?name=x", http.NoBody))
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "prometheus", UID: "1", Groups: []string{"scrapers"}, Extra: map[string]authorizationv1.ExtraValue{"pod": {"a"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAudience: a token for another audience has no user, even if the API server names no audience.
func TestAudience(t *testing.T) {
	for reason, test := range map[string]struct {
		token, audience string
		reported        []string
		isUser          bool
	}{
		"a token for the audience":                          {"good", "router", []string{"router"}, true},
		"a token for another audience":                      {"good", "router", []string{"vault"}, false},
		"an authenticator that ignores audiences":           {"good", "router", nil, false},
		"an invalid token":                                  {"bad", "router", []string{"router"}, false},
		"no audience: a token for the API server is needed": {"good", "", nil, true},
	} {
		t.Run(reason, func(t *testing.T) {
			api := reviewer{audiences: test.reported}
			client := api.client(t)
			var audiences []string
			if test.audience != "" {
				audiences = append(audiences, test.audience)
			}
			user, err := With(client.AuthenticationV1().TokenReviews(), nil).User(t.Context(), test.token, audiences...)
			if err != nil || (user != nil) != test.isUser {
				t.Errorf("the user is %v (%v), want one: %t", user, err, test.isUser)
			}
		})
	}
}
