// The quadruped's numbers: MuJoCo's Ant as its compiler makes it from Gymnasium's ant.xml, with the
// four aux links that are welded to the torso counted into it. Lengths in metres, masses in
// kilogrammes. Included by: quadruped_state.h and what draws the body.
#ifndef BRIM_QUADRUPED_MODEL_H_
#define BRIM_QUADRUPED_MODEL_H_

#define QUAD_GRAVITY 9.81
#define QUAD_HALF_SQRT2 0.70710678118654752440

// Of one leg, from the torso's centre outwards: centre to hip, hip to knee, knee to the middle of
// the ankle link are equally long; the foot is as far again.
#define QUAD_LINK 0.28284271247461900976
#define QUAD_RADIUS 0.08
#define QUAD_TORSO_RADIUS 0.25

#define QUAD_TORSO_MASS 0.32724923474893675
#define QUAD_TORSO_INERTIA 0.008181230868723419
#define QUAD_HIP_MASS 0.03915775372846671  // of an aux link too
#define QUAD_HIP_ACROSS 0.0005679660831928
#define QUAD_HIP_ALONG 0.00011844189805957
#define QUAD_ANKLE_MASS 0.06759220453268026
#define QUAD_ANKLE_ACROSS 0.00267479066003818
#define QUAD_ANKLE_ALONG 0.00020943214063305

// Torso and aux links together: a plate that looks alike along x and y.
#define QUAD_BASE_MASS (QUAD_TORSO_MASS + 4 * QUAD_HIP_MASS)
#define QUAD_AUX_FAR (QUAD_HIP_ACROSS + QUAD_HIP_MASS * (QUAD_LINK / 2) * (QUAD_LINK / 2))
#define QUAD_BASE_FLAT (QUAD_TORSO_INERTIA + 2 * QUAD_HIP_ALONG + 2 * QUAD_AUX_FAR)
#define QUAD_BASE_SPIN (QUAD_TORSO_INERTIA + 4 * QUAD_AUX_FAR)
#define QUAD_LEG_MASS (QUAD_HIP_MASS + QUAD_ANKLE_MASS)
#define QUAD_MASS (QUAD_BASE_MASS + 4 * QUAD_LEG_MASS)

#define QUAD_ARMATURE 1.0
#define QUAD_DAMPING 1.0
#define QUAD_GEAR 150.0
#define QUAD_HIP_LIMIT 0.52359877559829887308   // 30 degrees to both sides
#define QUAD_ANKLE_LOW 0.52359877559829887308   // 30 and 70 degrees, in the sense in which every
#define QUAD_ANKLE_HIGH 1.22173047639603070385  // ankle bends downwards

// Divisors of a constraint's regularization in MuJoCo: inverse weights at rest.
#define QUAD_WEIGHT_TORSO 1.1014374991441787
#define QUAD_WEIGHT_AUX 1.1804717947906864
#define QUAD_WEIGHT_HIP 1.8087762335752948
#define QUAD_WEIGHT_ANKLE 3.984413328576989
#define QUAD_WEIGHT_HIP_JOINT 0.9826359559730786
#define QUAD_WEIGHT_ANKLE_JOINT 0.9951024317528863

// Constraints' softness: solref (0.02, 1), solimp (0.9, 0.95, 0.001, 0.5, 2).
#define QUAD_SOLREF_TIME 0.02
#define QUAD_SOLIMP_MIN 0.9
#define QUAD_SOLIMP_MAX 0.95
#define QUAD_SOLIMP_WIDTH 0.001

// Newton ends when the active set repeats; a state that is not finite ends here.
#define QUAD_NEWTON_CAP 12

// From here on a state counts as diverged: no body of this kind is there, and what a step earns there
// or an observation shows is noise that would outweigh all others. Of all velocities together (root
// of the sum of squares; m/s and rad/s), and of all places and angles.
#define QUAD_DIVERGED_SPEED 1000.0
#define QUAD_DIVERGED_PLACE 1e5

// Bits of a leg in an info: which of its points touch. The torso's own stands with leg 0.
enum {
  QUAD_TOUCH_AUX_CENTRE = 1,
  QUAD_TOUCH_AUX_HIP = 2,
  QUAD_TOUCH_HIP_HIP = 4,
  QUAD_TOUCH_HIP_KNEE = 8,
  QUAD_TOUCH_ANKLE_KNEE = 16,
  QUAD_TOUCH_FOOT = 32,
  QUAD_TOUCH_TORSO = 64
};

#endif  // BRIM_QUADRUPED_MODEL_H_
